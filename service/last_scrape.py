"""A worker that has lost requests stays until somebody has seen it: what it counted goes with the process.

Whoever scrapes comes every few seconds. The last outcomes are counted a moment before the end, so that no
alert would ever hear of them.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from protocols.telemetry import DrainReport
from service.notify import Notifier
from service.notify.events import WaitingForScrape
from service.telemetry.logs import get_logger

# Who has not come by then does not come every few seconds.
LONGEST_S = 10.0
# A scrape is noticed when it begins: the page is made and sent after that.
ANSWER_S = 0.3


class Page(Protocol):
    """The framework's handle on ``/metrics``."""

    def register_prometheus_expfmt_callback(self, callback: Callable[[], str]) -> None:
        """Ask this at every scrape for what shall stand there, too."""
        ...


class LastScrape:
    """Notices who reads ``/metrics``. All methods belong to the event loop."""

    def __init__(self, notifier: Notifier) -> None:
        self._notifier = notifier
        self._loop: asyncio.AbstractEventLoop | None = None
        self._report: DrainReport | None = None
        self._counted_s = math.inf
        self._is_over = asyncio.Event()

    def watch(self, page: Page) -> None:
        """Before anything else is put on the page, so that it is read after this was called."""
        self._loop = asyncio.get_running_loop()
        page.register_prometheus_expfmt_callback(self._on_scrape)

    def all_counted(self, report: DrainReport | None) -> None:
        """A drain has ended, perhaps one by hand and long ago: a scrape from now on sees all its outcomes."""
        if report is not self._report:
            self._report, self._counted_s = report, time.monotonic()
            self._is_over.clear()

    def give_up(self) -> None:
        """Nobody is waited for any more. Idempotent."""
        self._is_over.set()

    async def wait(self, lost: int, until_s: float) -> None:
        """Until it was scraped, 10 s at most, and not beyond ``until_s`` (monotonic)."""
        left_s = min(LONGEST_S, until_s - time.monotonic())
        if self._loop is None or self._is_over.is_set() or left_s <= 0:
            return
        self._notifier.tell(WaitingForScrape(lost, left_s))
        log = get_logger("service.engine")
        log.warning("worker.waiting_to_be_scraped", lost=lost, left_s=round(left_s, 3))
        with suppress(TimeoutError):
            await asyncio.wait_for(self._is_over.wait(), left_s)

    def _on_scrape(self) -> str:
        """Some thread of the framework's. Adds nothing to the page."""
        # The loop may be closed: then nobody waits.
        with suppress(RuntimeError):
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._note, time.monotonic())
        return ""

    def _note(self, began_s: float) -> None:
        if self._loop is not None and began_s > self._counted_s:
            self._loop.call_later(ANSWER_S, self._answered, self._counted_s)

    def _answered(self, counted_s: float) -> None:
        if counted_s == self._counted_s:
            self._is_over.set()
