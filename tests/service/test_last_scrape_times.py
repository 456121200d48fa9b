"""The times of the wait for a last scrape: which one counts, when it was answered, how long nobody comes."""

from __future__ import annotations

import asyncio
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from protocols.telemetry import DrainReport
from service.last_scrape import LONGEST_S, LastScrape
from service.notify.events import WaitingForScrape
from tests.service.notify_manager import NotedNotifier

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

OPERATIONS = Path(__file__).resolve().parents[2] / "docs" / "operations.md"
# Until a page with all figures of a worker is made and sent, on a busy machine.
PAGE_S = 0.25


class Clock:
    """Stands where the module looks at the time; goes on when a test says so."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


class Scraped:
    """A wait, the page that ends it, and what the service manager hears of it."""

    def __init__(self) -> None:
        self.notifier = NotedNotifier()
        self.last = LastScrape(self.notifier)
        self.scrape: Callable[[], str] = str
        self.last.watch(self)

    def register_prometheus_expfmt_callback(self, callback: Callable[[], str]) -> None:
        self.scrape = callback

    async def is_waited_for(self) -> bool:
        """Whether a worker that lost one request has to wait now. The wait itself is given up at once."""
        waiting = asyncio.create_task(self.last.wait(1, time.monotonic() + 1000.0))
        await turns()
        self.last.give_up()
        await waiting
        return WaitingForScrape in map(type, self.notifier.events)


def report(seconds: float = 1.0) -> DrainReport:
    """Of a drain that has lost one request."""
    return DrainReport(
        live_at_start=1, completed=0, ended_otherwise=0, moved=0, interrupted=1, seconds=seconds
    )


async def turns() -> None:
    """Whatever is due in the loop by now happens."""
    for _ in range(5):
        await asyncio.sleep(0)


def run(steps: Callable[[Scraped], Awaitable[None]]) -> Scraped:
    """In a loop of its own."""

    async def in_loop() -> Scraped:
        scraped = Scraped()
        await steps(scraped)
        return scraped

    return asyncio.run(in_loop())


def test_a_scrape_has_time_to_be_answered() -> None:
    """It is noticed when it begins; a worker that went at once would take the page with it."""

    async def steps(scraped: Scraped) -> None:
        scraped.last.all_counted(report())
        waiting = asyncio.create_task(scraped.last.wait(1, time.monotonic() + 1000.0))
        await turns()
        began_s = time.monotonic()
        assert scraped.scrape() == ""
        await waiting
        assert PAGE_S <= time.monotonic() - began_s < LONGEST_S / 2

    run(steps)


@pytest.mark.parametrize(("later_s", "counts"), [(-0.001, False), (0.0, False), (0.001, True)])
def test_only_a_scrape_that_began_after_the_last_outcome_counts(
    monkeypatch: pytest.MonkeyPatch, later_s: float, counts: bool
) -> None:
    """One of the same moment may have read the counters before it."""
    clock = Clock()
    monkeypatch.setattr("service.last_scrape.time", clock)
    monkeypatch.setattr("service.last_scrape.ANSWER_S", 0.0)

    async def steps(scraped: Scraped) -> None:
        scraped.last.all_counted(report())
        clock.now_s += later_s
        scraped.scrape()
        await turns()
        assert await scraped.is_waited_for() is not counts

    run(steps)


def test_an_answer_of_an_earlier_drain_ends_no_later_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was on its way when somebody resumed, and another request was lost: that one has not been seen."""
    monkeypatch.setattr("service.last_scrape.ANSWER_S", 0.0)

    async def steps(scraped: Scraped) -> None:
        scraped.last.all_counted(report(1.0))
        scraped.scrape()
        # Noted, and not answered yet.
        await asyncio.sleep(0)
        scraped.last.all_counted(report(2.0))
        await turns()
        assert await scraped.is_waited_for()

    run(steps)


def test_the_same_drain_told_again_keeps_its_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal after a drain by hand asks for its report once more: what was seen stays seen."""
    monkeypatch.setattr("service.last_scrape.ANSWER_S", 0.0)

    async def steps(scraped: Scraped) -> None:
        told = report()
        scraped.last.all_counted(told)
        scraped.scrape()
        await turns()
        scraped.last.all_counted(told)
        assert not await scraped.is_waited_for()

    run(steps)


@pytest.mark.parametrize("left_s", [3.0, math.inf])
def test_the_wait_is_as_long_as_is_said(left_s: float) -> None:
    """The page for operators says how long that is, and that a budget with less left is kept."""

    async def steps(scraped: Scraped) -> None:
        scraped.last.all_counted(report())
        waiting = asyncio.create_task(scraped.last.wait(1, time.monotonic() + left_s))
        await turns()
        scraped.last.give_up()
        await waiting

    (told,) = run(steps).notifier.events
    assert isinstance(told, WaitingForScrape)
    assert told.left_s == pytest.approx(min(left_s, LONGEST_S), abs=0.5)
    text = " ".join(OPERATIONS.read_text(encoding="utf-8").split())
    assert f"{LONGEST_S:g} s are for a scrape interval below that" in text
