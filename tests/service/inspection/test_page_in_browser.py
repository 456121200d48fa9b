"""The page as its reader has it: in a real browser, with stories of every ending and ids that mean harm."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocols.telemetry import Outcome
from service.inspection.asking import Asked, Heard, Question
from service.inspection.journeys import journeys_of
from service.inspection.page import render_page, write_page
from service.inspection.view import view_of
from service.telemetry.stories import Kept
from tests.service.inspection.browser import ENTER, Browser
from tests.service.inspection.fleet import HOSTILE, continued, fleet, life, moved, worker_named
from tests.service.telemetry.tales import tale

# A browser that starts has company on a busy machine.
pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("quiet")]

ROW = "tr.request"
OPEN = "tr.more:not([hidden])"
# Places of the columns that are seen on a wide window.
DURATION, TO_ENGINE, FIRST_TOKEN = 3, 5, 6


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
    assert browser.texts(f"{OPEN} .across.life .id") == ["one:9090", "two:9090"]
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


def test_a_hop_of_any_name_has_a_bar(browser: Browser, tmp_path: Path):
    """Also of one that every object of the page's language knows."""
    names = ("toString", "__proto__", "constructor")
    hops = [{"name": f"actor.{name}", "start_ms": 0.0, "duration_ms": 500.0} for name in names]
    heard = Heard(
        Question(None, Kept.LAST, 64),
        (Asked(worker_named("one")),),
        tuple(journeys_of([life(tale(), "one", hops=hops)])),
    )
    file = tmp_path / "names.html"
    write_page(file, render_page(view_of(heard)))
    browser.open(file)
    assert browser.run(f"return document.querySelectorAll('{OPEN} .bar.stage-other').length;") == len(names)


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
    assert browser.texts(".chip.outcome-interrupted small") == ["2"]
    assert _order(browser) == ["broken"]
    browser.click(".chip.outcome-deadline")
    assert set(_order(browser)) == {"broken", "late"}
    browser.type("input", "lat")
    assert _order(browser) == ["late"]
    browser.type("input", "xyz")
    assert _order(browser) == []
    assert browser.texts(".empty") == ["No request is left: another word, or other outcomes?"]


def test_a_life_that_was_interrupted_is_found_though_another_one_completed(browser: Browser, page: Path):
    """Chips are of all lives: a page of what failed is full of requests that went well elsewhere."""
    browser.open(page)
    browser.click(".chip.outcome-interrupted")
    assert set(_order(browser)) == {"cut", "moved"}
    browser.click(".chip.outcome-interrupted")
    browser.click(".chip.outcome-completed")
    assert set(_order(browser)) >= {"well", "moved"}


def test_the_way_to_the_engine_is_that_of_all_lives(browser: Browser, page: Path):
    """A request that was moved waited twice."""
    browser.open(page)
    waits = browser.run(
        f"return [...document.querySelectorAll('{ROW}')].map((row) => "
        f"[row.querySelector('.toggle').innerText.trim(), row.cells[{TO_ENGINE}].innerText.trim()]);"
    )
    assert dict(waits)["well"] == "250 ms"
    assert dict(waits)["moved"] == "500 ms"


def test_a_worker_is_named_by_its_address_and_its_instance(browser: Browser, page: Path):
    """The one to go to, and the one to search for in logs and spans."""
    browser.open(page)
    _open_row(browser, "well")
    facts = dict(zip(browser.texts(f"{OPEN} dt"), browser.texts(f"{OPEN} dd"), strict=True))
    assert (facts["Worker"], facts["Instance"]) == ("one:9090", "one")
    assert facts["Caller's id"] == "gateway-1"
    assert facts["Asked for"] == "at most 16 tokens"
    browser.type("input", "gateway-1")
    assert _order(browser) == ["well"]


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
    assert browser.texts(".worker.silent .id") == ["three:9090"]
    assert "no worker answers" in browser.texts(".worker.silent .muted")[0]


def test_an_empty_page_says_so(browser: Browser, tmp_path: Path):
    """No table, no figures of nothing."""
    file = tmp_path / "empty.html"
    heard = Heard(Question(HOSTILE, Kept.LAST, 64), (Asked(worker_named("one")),), ())
    write_page(file, render_page(view_of(heard)))
    browser.open(file)
    assert browser.texts("#requests") == ["No such request is kept."]
    assert browser.texts("#overview") == []
