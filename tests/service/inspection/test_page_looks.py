"""What the page looks like and what it may not do, in a real browser: themes, widths, policy, any data."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.inspection.asking import Asked, Heard, Question
from service.inspection.journeys import Life, journeys_of
from service.inspection.page import render_page, write_page
from service.inspection.view import view_of
from service.telemetry.stories import Kept
from tests.service.inspection.browser import Browser
from tests.service.inspection.fleet import fleet
from tests.service.inspection.strategies import lives

# A browser that starts has company on a busy machine.
pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("quiet")]

OPEN = "tr.more:not([hidden])"
_OPEN_ALL = "document.querySelectorAll('.toggle[aria-expanded=false]').forEach((one) => one.click());"


def test_the_policy_forbids_every_connection(browser: Browser, page: Path):
    """Also to a script that would be in the page: nothing is sent, and no other script runs."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        browser.open(page)
        broken: list[str] = browser.run(_BREAK_THE_POLICY, f"http://127.0.0.1:{listener.getsockname()[1]}/")
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert broken == ["connect-src", "img-src", "script-src-elem"]
    assert browser.run("return window.hasRun;") is None
    # It did complain, and did ask.
    assert len(browser.console()) >= len(broken)
    browser.requested()


_BREAK_THE_POLICY = """
return new Promise((resolve) => {
  const seen = [];
  document.addEventListener("securitypolicyviolation", (event) => {
    seen.push(event.effectiveDirective);
    if (seen.length === 3) resolve(seen.sort());
  });
  fetch(arguments[0]).catch(() => {});
  document.body.append(Object.assign(document.createElement("script"), { textContent: "window.hasRun = 1" }));
  document.body.append(Object.assign(document.createElement("img"), { src: arguments[0] }));
});
"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_both_themes_can_be_read(browser: Browser, page: Path, theme: str):
    """Every text stands out from what is behind it as the WCAG ask (4.5 to 1), in the reader's own theme."""
    browser.open(page, theme=theme)
    browser.run(_OPEN_ALL)
    ground = browser.run("return getComputedStyle(document.body).backgroundColor;")
    assert (sum(_channels(ground)) > 3 * 128) is (theme == "light")
    weak = [
        (text, round(ratio, 2))
        for text, front, back in browser.run(_COLOURS)
        if (ratio := _contrast(_channels(front), _channels(back))) < 4.5
    ]
    assert weak == []


# Of every element with text of its own: the text, its colour, and the first ground below it that is opaque.
_COLOURS = """
const ground = (one) => {
  for (let at = one; at; at = at.parentElement) {
    const colour = getComputedStyle(at).backgroundColor;
    if (!/^(rgba\\(.*, 0(\\.\\d+)?\\)|color\\(.*\\/.*|transparent)/.test(colour)) return colour;
  }
};
return [...document.querySelectorAll("body *")]
  .filter((one) => one.getClientRects().length > 0)
  .filter((one) => [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim() !== ""))
  .map((one) => [one.innerText, getComputedStyle(one).color, ground(one)]);
"""


def _channels(colour: str) -> list[float]:
    return [float(part) for part in colour[colour.index("(") + 1 : -1].replace("/", ",").split(",")[:3]]


def _contrast(one: list[float], other: list[float]) -> float:
    """Of two colours, as the WCAG count it."""

    def light(channels: list[float]) -> float:
        parts = [part / 255 for part in channels]
        red, green, blue = (
            part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    darker, lighter = sorted((light(one), light(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("width", [360, 390, 761, 901, 1201, 1280])
def test_nothing_is_wider_than_the_window(browser: Browser, page: Path, width: int):
    """From a phone's to a desk's, just above where the page changes, with every request opened."""
    browser.open(page, width=width)
    browser.run(_OPEN_ALL)
    assert len(browser.texts(OPEN)) == len(fleet().journeys)
    assert browser.run("return document.documentElement.scrollWidth;") <= width


@settings(deadline=None, max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(told=st.lists(lives(st.sampled_from(["here", "there"])), min_size=1, max_size=6))
def test_the_page_shows_whatever_workers_say(browser: Browser, tmp_path: Path, told: list[Life]):
    """Every request opens, at both time scales, and nothing is drawn beyond its track."""
    asked = tuple({life.worker.url: Asked(life.worker) for life in told}.values())
    heard = Heard(Question(None, Kept.LAST, 64), asked, tuple(journeys_of(told)))
    file = tmp_path / "any.html"
    write_page(file, render_page(view_of(heard)))
    browser.open(file)
    browser.run(_OPEN_ALL)
    assert len(browser.texts(OPEN)) == len(heard.journeys)
    for _ in range(2):
        assert browser.run(_OUTSIDE) == 0
        browser.run("document.querySelectorAll('.segments button:last-child').forEach((one) => one.click());")
    for place in range(len(browser.texts("th"))):
        browser.click("th button", place)
    assert browser.console() == []


# How many bars, ticks and pins do not begin on their track, or end after it.
_OUTSIDE = """
return [...document.querySelectorAll(".bar, .line, .pin")].filter((one) => {
  const [drawn, track] = [one.getBoundingClientRect(), one.parentElement.getBoundingClientRect()];
  const end = one.classList.contains("bar") ? drawn.right : drawn.left;
  return one.classList.contains("late") ? false : drawn.left < track.left - 5 || end > track.right + 5;
}).length;
"""
