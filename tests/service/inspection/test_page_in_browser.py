"""The page as its reader has it: in a real browser, with stories of every ending and ids that mean harm."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocols.telemetry import Outcome
from service.inspection.asking import Asked, Heard, Question
from service.inspection.journeys import Life, journeys_of
from service.inspection.page import render_page, write_page
from service.inspection.view import view_of
from service.telemetry.stories import Kept
from tests.service.inspection.browser import ENTER, Browser
from tests.service.inspection.fleet import HOSTILE, continued, fleet, life, moved, worker_named
from tests.service.inspection.strategies import lives

if TYPE_CHECKING:
    from collections.abc import Iterator

# A browser that starts has company on a busy machine.
pytestmark = pytest.mark.timeout(60)

ROW = "tr.request"
OPEN = "tr.more:not([hidden])"
# Places of the columns that are seen on a wide window.
DURATION, FIRST_TOKEN = 3, 6


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that can be on it."""
    file = tmp_path_factory.mktemp("page") / "trace.html"
    write_page(file, render_page(view_of(fleet())))
    return file


@pytest.fixture(autouse=True)
def quiet(browser: Browser) -> Iterator[None]:
    """Whatever a test does, the page complains about nothing and asks nobody for anything but itself."""
    yield
    assert browser.console() == []
    assert [url for url in browser.requested() if not url.startswith(("file:", "data:"))] == []


def _order(browser: Browser) -> list[str]:
    return browser.texts(f"{ROW} .toggle")


def _durations(browser: Browser) -> list[float]:
    """Of the rows in their order, in milliseconds."""
    titles: list[str] = browser.run(
        f"return [...document.querySelectorAll('{ROW}')]"
        f".map((row) => row.cells[{DURATION}].firstChild.title);"
    )
    return [float(title.removesuffix(" ms").replace(",", "")) for title in titles]


def _close_all(browser: Browser) -> None:
    browser.run("document.querySelectorAll('.toggle[aria-expanded=true]').forEach((one) => one.click());")


def _open_row(browser: Browser, context_id: str) -> None:
    _close_all(browser)
    browser.click(ROW, _order(browser).index(context_id))


def test_every_request_has_its_row(browser: Browser, page: Path):
    """With outcome and reason in words; the moved one is a single row."""
    browser.open(page)
    assert len(_order(browser)) == len(fleet().journeys)
    shown = browser.texts(f"{ROW} .badge")
    assert {outcome.replace("_", " ") for outcome in Outcome} <= set(shown)
    assert _order(browser).count("moved") == 1
    assert browser.texts(f"{ROW} .lives") == ["2 lives"]


def test_a_sort_by_duration_sorts(browser: Browser, page: Path):
    """The longest first, then the shortest; the column says which way, to those who cannot see it too."""
    browser.open(page)
    browser.click("th button", DURATION)
    assert _durations(browser) == sorted(_durations(browser), reverse=True)
    sorts = "return [...document.querySelectorAll('th')].map((head) => head.getAttribute('aria-sort'));"
    assert browser.run(sorts)[DURATION] == "descending"
    browser.click("th button", DURATION)
    assert _durations(browser) == sorted(_durations(browser))
    assert len(set(_durations(browser))) > 4
    states = browser.run(sorts)
    assert states[DURATION] == "ascending"
    assert [state for state in states if state is not None] == ["ascending"]


def test_what_is_not_known_comes_last_in_both_directions(browser: Browser, page: Path):
    """A request without a first token is neither the fastest nor the slowest."""
    browser.open(page)
    for _ in range(2):
        browser.click("th button", FIRST_TOKEN)
        shown = browser.run(
            f"return [...document.querySelectorAll('{ROW}')]"
            f".map((row) => row.cells[{FIRST_TOKEN}].innerText.trim());"
        )
        unknown = shown.count("\N{EN DASH}")
        assert unknown > 0
        assert shown[-unknown:] == ["\N{EN DASH}"] * unknown


def test_it_can_be_read_without_a_mouse(browser: Browser, page: Path):
    """Headers sort and rows open by the keyboard."""
    browser.open(page)
    browser.type("th button", ENTER, DURATION)
    assert _durations(browser) == sorted(_durations(browser), reverse=True)
    _close_all(browser)
    browser.type(".toggle", ENTER, 2)
    assert browser.run("return document.activeElement.getAttribute('aria-expanded');") == "true"
    assert len(browser.texts(OPEN)) == 1


def test_a_click_on_a_row_shows_that_waterfall(browser: Browser, page: Path):
    """Below the row, with its stages to scale; another click puts it away."""
    browser.open(page)
    _open_row(browser, "left")
    assert browser.texts(f"{OPEN} .label") == ["", "Intake", "Resolve", "Waiting", "Prefill", ""]
    assert browser.run(f"return document.querySelector('{OPEN}').previousSibling.innerText;").startswith(
        "left"
    )
    shares = browser.run(
        f"return [...document.querySelectorAll('{OPEN} .bar')].map((bar) => {{"
        "const [cell, track] = [bar.getBoundingClientRect(), bar.parentNode.getBoundingClientRect()];"
        "return [(cell.left - track.left) / track.width, cell.width / track.width];});"
    )
    expected = [(0, 1 / 12), (1 / 12, 1 / 12), (1 / 6, 1 / 6), (1 / 3, 2 / 3)]
    for share, wanted in zip(shares, expected, strict=True):
        assert share == pytest.approx(wanted, abs=0.005)
    assert browser.texts(f"{OPEN} .pinned") == ["ended early: client, 500 ms"]
    browser.click(ROW, _order(browser).index("left"))
    assert browser.texts(OPEN) == []


def test_a_moved_request_is_one_waterfall(browser: Browser, page: Path):
    """Two lives on one axis, with the gap between them; the second begins where the gap ends."""
    browser.open(page)
    _open_row(browser, "moved")
    assert browser.texts(f"{OPEN} .across.life strong") == ["Life 1", "Life 2"]
    assert browser.texts(f"{OPEN} .across.life .id") == ["one", "two"]
    edges: dict[str, list[float]] = browser.run(
        f"const bars = [...document.querySelectorAll('{OPEN} .bar')];"
        "const of = (kind) => bars.filter((bar) => bar.classList.contains(kind))"
        ".map((bar) => [bar.getBoundingClientRect().left, bar.getBoundingClientRect().right]).flat();"
        "return {streams: of('stage-stream'), gap: of('stage-gap'), intakes: of('stage-intake')};"
    )
    assert edges["streams"][1] == pytest.approx(edges["gap"][0], abs=1)
    assert edges["gap"][1] == pytest.approx(edges["intakes"][2], abs=1)
    assert "5.25 s" in browser.texts(f"{OPEN} .verdict")[0]


def test_clocks_that_contradict_each_other_are_said(browser: Browser, tmp_path: Path):
    """No gap is drawn then, least of all a negative one."""
    journeys = journeys_of([life(moved(), "one", 100.0), life(continued(), "two", 101.0)])
    asked = (Asked(worker_named("one")), Asked(worker_named("two")))
    file = tmp_path / "clocks.html"
    write_page(file, render_page(view_of(Heard(Question(None, Kept.LAST, 64), asked, tuple(journeys)))))
    browser.open(file)
    assert "clocks differ by 1.50 s or more" in browser.texts(f"{OPEN} .across.notice")[0]
    assert browser.texts(f"{OPEN} .stage-gap") == []


def test_the_way_to_the_first_token_can_be_looked_at_alone(browser: Browser, page: Path):
    """It is a sliver of a long answer: the axis ends with it then."""
    browser.open(page)
    _open_row(browser, "asleep")
    width = f"return document.querySelector('{OPEN} .stage-prefill').getBoundingClientRect().width;"
    before = browser.run(width)
    browser.click(f"{OPEN} .segments button", 1)
    assert browser.run(width) > 20 * before
    assert browser.texts(f"{OPEN} .axis")[-2].endswith("500")


def test_rows_can_be_narrowed(browser: Browser, page: Path):
    """By outcome, by a word of an id, a reason, or a worker; an open row goes with its waterfall."""
    browser.open(page)
    browser.click(".chip.outcome-failed")
    assert _order(browser) == ["broken"]
    browser.click(".chip.outcome-deadline")
    assert set(_order(browser)) == {"broken", "late"}
    browser.type("input", "lat")
    assert _order(browser) == ["late"]
    browser.type("input", "xyz")
    assert _order(browser) == []
    assert browser.texts(".empty") == ["No request is left: another word, or other outcomes?"]


def test_nothing_from_outside_becomes_markup(browser: Browser, page: Path):
    """Ids, reasons, errors and outcomes are read as text, in which no character turns the line around."""
    browser.open(page)
    for context_id in _order(browser):
        _open_row(browser, context_id)
        assert browser.run("return document.querySelectorAll('img, script, iframe').length;") == 2
    shown = browser.run("return document.body.innerText;")
    assert "onerror=alert(2)" in shown
    assert "\u202e" not in shown
    assert "\x1b" not in shown
    assert browser.run("return document.title;").startswith("Requests")


def test_a_worker_that_was_silent_is_named(browser: Browser, page: Path):
    """Whoever reads the page must know that it is not all."""
    browser.open(page)
    assert browser.texts(".worker.silent .id") == ["http://three:9090"]
    assert "no worker answers" in browser.texts(".worker.silent .muted")[0]


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
    for context_id in ("moved", "broken"):
        browser.click(ROW, _order(browser).index(context_id))
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
    browser.run("document.querySelectorAll('.toggle[aria-expanded=false]').forEach((one) => one.click());")
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
    browser.run("document.querySelectorAll('.toggle[aria-expanded=false]').forEach((one) => one.click());")
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


def test_an_empty_page_says_so(browser: Browser, tmp_path: Path):
    """No table, no figures of nothing."""
    file = tmp_path / "empty.html"
    heard = Heard(Question(HOSTILE, Kept.LAST, 64), (Asked(worker_named("one")),), ())
    write_page(file, render_page(view_of(heard)))
    browser.open(file)
    assert browser.texts("#requests") == ["No such request is kept."]
    assert browser.texts("#overview") == []
