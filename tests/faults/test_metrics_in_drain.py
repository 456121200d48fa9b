"""Row 18: the metrics page while the worker drains and goes."""

from __future__ import annotations

import http.client
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from tests.e2e.waiting import wait_until
from tests.faults.figures import percentile
from tests.faults.load import Kind, Load
from tests.faults.moments import read_figures

if TYPE_CHECKING:
    from tests.e2e.stacks import Worker
    from tests.faults.conftest import StackFactory
    from tests.faults.figures import Figures

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

EVERY_S = 0.05
# "Never hangs": far above what a busy machine needs for a page.
HANGS_S = 10.0
_RISING = ("_total", "_count", "_sum", "_bucket")


@dataclass
class Scraper:
    """A Prometheus that asks every 50 ms, in a thread, until the worker has gone."""

    worker: Worker
    pages: list[dict[str, float]] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    _is_over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Scraper:
        self._thread = threading.Thread(target=self._scrape, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        assert self._thread is not None
        self._thread.join(HANGS_S)
        assert not self._thread.is_alive(), "a scrape hangs"

    def _scrape(self) -> None:
        while not self._is_over.wait(EVERY_S):
            began_s = time.monotonic()
            try:
                status, page = self.worker.system.get("/metrics", HANGS_S)
            except (ConnectionError, http.client.HTTPException):
                return
            self.took_s.append(time.monotonic() - began_s)
            self.statuses.append(status)
            self.pages.append(read_figures(page))

    def falls(self) -> list[str]:
        """Counters that were lower on a later page, or missing there."""
        fallen: list[str] = []
        for before, after in zip(self.pages, self.pages[1:], strict=False):
            fallen += [
                name
                for name, value in before.items()
                if name.partition("{")[0].endswith(_RISING) and after.get(name, -1.0) < value
            ]
        return fallen


def test_the_metrics_page_answers_during_a_drain_and_its_counters_never_fall(
    new_stack: StackFactory, figures: Figures
) -> None:
    """64 streams, a drain by hand and back, then SIGTERM: every scrape answers, or the worker has gone."""
    stack = new_stack()
    worker = stack.workers[0]
    with Load(stack.http_port, stack.model()) as load, Scraper(worker) as scraper:
        load.start(Kind.PLAIN, 64, max_tokens=60)
        load.wait_tokens(5)
        assert worker.control("drain", {"timeout_s": 60})["safe_to_delete"]
        worker.control("resume")
        # The frontend forgets a model without workers.
        wait_until(lambda: stack.client.models() and stack.chat("w5", max_tokens=1)[0] == 200, worker.log)
        load.start(Kind.PLAIN, 64, max_tokens=100)
        load.wait_tokens(5)
        worker.child.ask_to_stop()
        answers = load.finish()
        assert worker.child.wait(30) == 0
    assert [str(answer) for answer in answers if not answer.is_complete] == []
    assert set(scraper.statuses) == {200}
    assert scraper.falls() == []
    ended = scraper.pages[-1]['dynamo_actor_requests_total{outcome="completed"}']
    assert ended > 64
    figures.record(
        row=18,
        what=f"{len(scraper.pages)} scrapes from drain to exit: 5xx, fallen counters; slowest, p50",
        value=f"0, {len(scraper.falls())}; {max(scraper.took_s) * 1000:.0f} ms, "
        f"{percentile(scraper.took_s, 0.5) * 1000:.0f} ms",
        goal="0, 0; 100 ms",
    )
