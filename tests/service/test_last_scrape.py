"""A worker that has lost requests stays until its last outcomes were scraped, within its budget."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import pytest
from dynamo.llm.exceptions import EngineShutdown

from service.notify.events import WaitingForScrape
from tests.doubles.callers import wire_request
from tests.service.notify_manager import NotedNotifier
from tests.service.worker import budgets, synthetic

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from tests.service.conftest import OpenWorker
    from tests.service.worker import FacadeWorker

FOREVER = 1900
LINE = "worker.waiting_to_be_scraped"
# Of a wait that is over at once, and well below the 10 s that nobody has to wait here.
SOON_S = 6.0
LONG = budgets(drain_s=0.2, return_by_s=100.0)


class Page:
    """The framework's handle, and who reads the page."""

    def __init__(self, worker: FacadeWorker) -> None:
        self.auto_labels: dict[str, str] = {}
        self._callbacks: list[Callable[[], str]] = []
        worker.loop.run(worker.facade.register_prometheus(cast("Any", self)))

    def register_prometheus_expfmt_callback(self, callback: Callable[[], str]) -> None:
        self._callbacks.append(callback)

    def scrape(self) -> str:
        return "".join(callback() for callback in self._callbacks)


def lose_one(worker: FacadeWorker, choices: int = 2) -> Future[None]:
    """A signal; what has two choices cannot be moved, and is lost at the end of the drain."""
    call = worker.ask(wire_request(max_tokens=FOREVER, n=choices))
    worker.until(lambda: worker.graph.ledger.admitted == 1)
    worker.send_signal()
    cleanup = worker.begin_cleanup()
    call.read_to_end()
    assert isinstance(call.error, EngineShutdown)
    return cleanup


def lose_one_by_hand(worker: FacadeWorker, page: Page) -> None:
    """The same by the control route, and it was scraped."""
    call = worker.ask(wire_request(max_tokens=FOREVER, n=2))
    worker.until(lambda: worker.graph.ledger.admitted == 1)
    worker.control("drain", timeout_s=0.1)
    page.scrape()
    worker.until(worker.facade._last_scrape._is_over.is_set)
    call.read_to_end()


def waits(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if LINE in record.getMessage()]


def test_a_lost_request_is_scraped_before_the_worker_goes(
    open_worker: OpenWorker, caplog: pytest.LogCaptureFixture
) -> None:
    """It stays, and says so; a scrape after its last outcome lets it go. One before it does not count."""
    with open_worker(synthetic(5.0), drain=LONG, has_system_server=True) as worker:
        worker.open()
        page = Page(worker)
        page.scrape()
        cleanup = lose_one(worker)
        worker.until(lambda: waits(caplog))
        assert "lost=1 " in waits(caplog)[0]
        assert not cleanup.done()
        page.scrape()
        cleanup.result(SOON_S)


def test_a_worker_that_nobody_scrapes_goes_after_its_wait(
    open_worker: OpenWorker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Ten seconds at most, a moment here."""
    monkeypatch.setattr("service.last_scrape.LONGEST_S", 0.5)
    with open_worker(synthetic(5.0), drain=LONG, has_system_server=True) as worker:
        worker.open()
        Page(worker)
        lose_one(worker).result(SOON_S)
        assert "left_s=0.5" in waits(caplog)[0]


def test_a_service_manager_is_told_what_is_waited_for(
    open_worker: OpenWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many were lost, and for how long the worker may stay for that."""
    notifier = NotedNotifier()
    monkeypatch.setattr("service.engine.Notifier", lambda: notifier)
    monkeypatch.setattr("service.last_scrape.LONGEST_S", 0.5)
    with open_worker(synthetic(5.0), drain=LONG, has_system_server=True) as worker:
        worker.open()
        Page(worker)
        lose_one(worker).result(SOON_S)
    assert [event for event in notifier.events if isinstance(event, WaitingForScrape)] == [
        WaitingForScrape(1, 0.5)
    ]


def test_a_second_signal_ends_the_wait(open_worker: OpenWorker, caplog: pytest.LogCaptureFixture) -> None:
    """Who asks twice is in a hurry."""
    with open_worker(synthetic(5.0), drain=LONG, has_system_server=True) as worker:
        worker.open()
        Page(worker)
        cleanup = lose_one(worker)
        worker.until(lambda: waits(caplog))
        worker.send_signal()
        cleanup.result(SOON_S)


@pytest.mark.parametrize(
    ("choices", "return_by_s", "has_server", "signals"),
    [(1, 100.0, True, 1), (2, 2.7, True, 1), (2, 100.0, False, 1), (2, 100.0, True, 2)],
    ids=["moved", "no time left", "no system server", "asked twice"],
)
def test_nobody_waits_without_need_or_time(
    open_worker: OpenWorker,
    caplog: pytest.LogCaptureFixture,
    choices: int,
    return_by_s: float,
    has_server: bool,
    signals: int,
) -> None:
    """What another worker takes over is not lost, a budget is kept, and without a page nobody comes."""
    drain = budgets(drain_s=0.2, return_by_s=return_by_s)
    with open_worker(synthetic(5.0), drain=drain, has_system_server=has_server) as worker:
        worker.open()
        Page(worker)
        if signals > 1:
            worker.send_signal()
        lose_one(worker, choices).result(SOON_S)
        assert waits(caplog) == []


def test_who_has_lost_another_one_after_a_drain_by_hand_waits_again(
    open_worker: OpenWorker, caplog: pytest.LogCaptureFixture
) -> None:
    """A scrape from before `resume` has not seen it."""
    with open_worker(synthetic(5.0), drain=LONG, has_system_server=True) as worker:
        worker.open()
        page = Page(worker)
        lose_one_by_hand(worker, page)
        worker.control("resume")
        cleanup = lose_one(worker)
        worker.until(lambda: waits(caplog))
        page.scrape()
        cleanup.result(SOON_S)


def test_a_signal_long_after_a_drain_by_hand_ends_at_once(
    open_worker: OpenWorker, caplog: pytest.LogCaptureFixture
) -> None:
    """What that drain lost was scraped since."""
    with open_worker(synthetic(5.0), drain=LONG, has_system_server=True) as worker:
        worker.open()
        page = Page(worker)
        lose_one_by_hand(worker, page)
        worker.send_signal()
        worker.begin_cleanup().result(SOON_S)
        assert waits(caplog) == []


def test_a_scrape_between_the_last_outcome_and_the_end_is_enough(
    open_worker: OpenWorker, caplog: pytest.LogCaptureFixture
) -> None:
    """It has seen all there is; somebody who scrapes all the time is not waited for."""
    with open_worker(synthetic(5.0), drain=LONG, has_system_server=True) as worker:
        worker.open()
        page = Page(worker)
        call = worker.ask(wire_request(max_tokens=FOREVER, n=2))
        worker.until(lambda: worker.graph.ledger.admitted == 1)
        worker.send_signal()
        cleanup = worker.begin_cleanup()
        worker.until(lambda: worker.facade._last_scrape._counted_s < math.inf)
        page.scrape()
        worker.until(worker.facade._last_scrape._is_over.is_set)
        call.read_to_end()
        cleanup.result(SOON_S)
        assert waits(caplog) == []
