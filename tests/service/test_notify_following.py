"""What the event loop tells the notifier: states, a listing in discovery, signs of life, and the end."""

from __future__ import annotations

import asyncio
import os
import re
import time
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from protocols.telemetry import NullTelemetry, WorkerState
from service.notify import Follower
from service.notify.events import (
    DrainProgress,
    Failed,
    Listed,
    LoopTurned,
    Resting,
    StateChanged,
)
from service.notify.following import Overheard
from service.notify.stages import Life
from tests.doubles.endpoints import EndpointDouble
from tests.doubles.engines import ScriptedEngine
from tests.doubles.listeners import RecordingTelemetry
from tests.doubles.maintenance import SleepyEngine
from tests.service.notify_manager import Manager, NotedNotifier

if TYPE_CHECKING:
    from tests.service.conftest import OpenWorker

OWN, OTHER = 7, 8
PATIENCE_S = 20.0


class Watch:
    """The framework's client: sees who is listed, when a test says so. gone: what it raises instead."""

    def __init__(self) -> None:
        self.listed: list[int] = [OTHER]
        self.error: Exception | None = None
        self.looks = 0

    def instance_ids(self) -> list[int]:
        self.looks += 1
        if self.error is not None:
            raise self.error
        return self.listed


class WatchedEndpoint(EndpointDouble):
    """An endpoint that can be watched."""

    def __init__(self, events: list[str] | None = None) -> None:
        super().__init__([] if events is None else events)
        self.watch = Watch()

    def connection_id(self) -> int:
        return OWN

    async def client(self) -> Watch:
        return self.watch


async def until(is_so: Any) -> None:
    with anyio.fail_after(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110 - a test looks from outside
            await asyncio.sleep(0.005)


def follow(notifier: NotedNotifier, endpoint: object, steps: Any) -> None:
    """A loop in which the framework has opened this endpoint."""

    async def run() -> None:
        follower = Follower(notifier)
        follower.opened(endpoint)
        await steps()

    asyncio.run(run())


def test_ready_waits_until_discovery_lists_this_very_worker() -> None:
    """Others of its kind are not enough."""
    notifier, endpoint = NotedNotifier(), WatchedEndpoint()

    async def steps() -> None:
        await until(lambda: endpoint.watch.looks > 2)
        assert notifier.events == []
        endpoint.watch.listed.append(OWN)
        await until(lambda: notifier.events)

    follow(notifier, endpoint, steps)
    assert notifier.events == [Listed()]


@pytest.mark.parametrize(
    "endpoint", [EndpointDouble([]), object()], ids=["has no client", "is something else"]
)
def test_where_discovery_cannot_be_seen_the_worker_counts_as_listed(
    endpoint: object, caplog: pytest.LogCaptureFixture
) -> None:
    """A framework that has no such call must not have its worker killed for it; a warning says so."""
    notifier = NotedNotifier()
    follow(notifier, endpoint, lambda: until(lambda: notifier.events))
    assert notifier.events == [Listed()]
    assert "notify.discovery_unseen error=AttributeError" in caplog.text


def test_a_watch_that_breaks_does_not_hold_ready_back(caplog: pytest.LogCaptureFixture) -> None:
    """Neither its words nor a traceback are in the log."""
    notifier, endpoint = NotedNotifier(), WatchedEndpoint()
    endpoint.watch.error = ConnectionError("secret")
    follow(notifier, endpoint, lambda: until(lambda: notifier.events))
    assert notifier.events == [Listed()]
    assert "ConnectionError" in caplog.text
    assert "secret" not in caplog.text


def test_a_loop_that_ends_while_it_looks_says_nothing() -> None:
    """The worker was never listed."""
    notifier, endpoint = NotedNotifier(), WatchedEndpoint()
    follow(notifier, endpoint, lambda: until(lambda: endpoint.watch.looks))
    assert notifier.events == []


def test_a_sign_of_life_is_a_turn_of_the_loop() -> None:
    """While it turns they come; while it stands still none does, however long."""
    notifier = NotedNotifier(watchdog_s=0.03)

    async def run() -> None:
        Follower(notifier).beside(NullTelemetry())
        await until(lambda: len(notifier.events) > 3)
        told = len(notifier.events)
        time.sleep(0.2)  # noqa: ASYNC251 - a loop that stands still is the point
        assert len(notifier.events) == told
        await until(lambda: len(notifier.events) > told)

    asyncio.run(run())
    assert set(notifier.events) == {LoopTurned()}


def test_signs_of_life_come_three_times_in_the_managers_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that comes late, or is not taken, is followed by another one in time; it never ends by itself."""
    notifier, delays_s = NotedNotifier(watchdog_s=30.0), list[float]()

    async def run() -> None:
        loop = asyncio.get_running_loop()

        def call_later(delay_s: float, callback: Any, *words: Any) -> None:
            delays_s.append(delay_s)
            if len(delays_s) < 5:
                callback(*words)

        with monkeypatch.context() as patched:
            patched.setattr(loop, "call_later", call_later)
            Follower(notifier).beside(NullTelemetry())

    asyncio.run(run())
    assert delays_s == [10.0] * 5
    assert notifier.events == [LoopTurned()] * 5


@pytest.mark.parametrize(("watchdog_s", "is_enough"), [(None, True), (19.0, False), (20.0, True)])
def test_a_manager_that_is_less_patient_than_the_loop_guard_is_warned_of(
    open_worker: OpenWorker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    watchdog_s: float | None,
    is_enough: bool,
) -> None:
    """The guard waits 13 s here and knows why; two thirds of 19 s are less. What to set is said."""
    monkeypatch.setattr("service.engine.Notifier", lambda: NotedNotifier(watchdog_s))
    with open_worker() as worker:
        worker.open()
    lines = [record.getMessage() for record in caplog.records if "notify.impatient" in record.getMessage()]
    assert len(lines) == (0 if is_enough else 1)
    for line in lines:
        for words in ("WATCHDOG_USEC=19000000", " 12.6667 s", " 13 s ", "--engine-hang-timeout", "=20 "):
            assert words in line


@pytest.mark.parametrize("longest_s", [6.0, 13.0, 20.0, 31.0, 120.0])
def test_what_a_warning_asks_for_is_enough(longest_s: float, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever sets the time that is named there, to the second, is not warned again."""
    Follower(NotedNotifier(watchdog_s=1.0)).guarded(longest_s)
    (named,) = re.findall(r"set WatchdogSec=(\d+) or more", caplog.text)
    caplog.clear()
    Follower(NotedNotifier(watchdog_s=float(named))).guarded(longest_s)
    assert caplog.text == ""
    # And not more than enough.
    Follower(NotedNotifier(watchdog_s=float(named) - 1)).guarded(longest_s)
    assert "notify.impatient" in caplog.text


def test_without_a_manager_the_graph_speaks_to_its_listener_alone() -> None:
    """Nobody stands between, no timer runs, and discovery is not watched."""

    async def run() -> None:
        recorder = RecordingTelemetry()
        worker_follower = Follower(SilentNotifier())
        assert worker_follower.beside(recorder) is recorder
        worker_follower.opened(object())

    asyncio.run(run())


class SilentNotifier(NotedNotifier):
    """Nobody listens; whoever tells it something all the same is found out."""

    @property
    def is_on(self) -> bool:
        return False

    def tell(self, event: object) -> None:
        raise AssertionError(event)


def test_what_is_overheard_reaches_the_listener_and_the_rest_goes_there_directly() -> None:
    """No call is added to what is told once a request or a step."""
    recorder, notifier = RecordingTelemetry(), NotedNotifier()
    overheard = Overheard(recorder, notifier)
    overheard.state_changed(WorkerState.LOADING)
    overheard.drain_progress(3, 9.5)
    assert recorder.states == [WorkerState.LOADING]
    assert notifier.events == [StateChanged(WorkerState.LOADING), DrainProgress(3, 9.5)]
    for name in ("request_submitted", "request_ended", "step_done", "abort_told", "bound_reached"):
        assert getattr(overheard, name) == getattr(recorder, name)


@pytest.fixture
def notifier(monkeypatch: pytest.MonkeyPatch) -> NotedNotifier:
    """What workers of a test tell; they are put together as without a manager."""
    noted = NotedNotifier()
    monkeypatch.setattr("service.engine.Notifier", lambda: noted)
    return noted


def states(notifier: NotedNotifier) -> list[WorkerState]:
    return [event.state for event in notifier.events if isinstance(event, StateChanged)]


def test_a_worker_tells_its_whole_life(open_worker: OpenWorker, notifier: NotedNotifier) -> None:
    """From loading to its end, with discovery's word behind that of the graph."""
    with open_worker() as worker:
        worker.start()
        endpoint = WatchedEndpoint(worker.events)
        worker.loop.run(worker.facade.on_endpoint_ready(endpoint))
        assert Listed() not in notifier.events
        endpoint.watch.listed.append(OWN)
        worker.loop.run(until(lambda: Listed() in notifier.events))
        worker.end()
    assert states(notifier) == [
        WorkerState.LOADING,
        WorkerState.SERVING,
        WorkerState.DRAINING,
        WorkerState.DRAINED,
        WorkerState.STOPPING,
    ]
    listed_at = notifier.events.index(Listed())
    assert notifier.events.index(StateChanged(WorkerState.SERVING)) < listed_at


def test_a_worker_that_dies_tells_why(open_worker: OpenWorker, notifier: NotedNotifier) -> None:
    """In the words of the log, which hold nothing of a request."""
    engine = ScriptedEngine()
    with open_worker(engine) as worker:
        worker.open()
        engine.die()
        worker.loop.run(until(lambda: any(isinstance(event, Failed) for event in notifier.events)))
    assert states(notifier)[2] is WorkerState.FAILED
    (failed,) = [event for event in notifier.events if isinstance(event, Failed)]
    assert failed.why


def test_sleep_and_wake_are_told(open_worker: OpenWorker, notifier: NotedNotifier) -> None:
    """The graph does not know of them: it is drained."""
    with open_worker(SleepyEngine()) as worker:
        worker.open()
        worker.control("fall_asleep")
        worker.control("wake")
        told = [event for event in notifier.events if isinstance(event, Resting)]
        assert [event.how for event in told] == ["pausing", "asleep", "waking", "awake"]
        assert [event.is_awake for event in told] == [False, False, False, True]
        life = Life()
        heard = [life.hear(event) for event in notifier.events if not isinstance(event, LoopTurned)]
        statuses = [news["STATUS"] for news in heard if "STATUS" in news]
        assert statuses[-6:] == [
            "draining",
            "drained",
            "sleeping: asleep",
            "sleeping: waking",
            "drained",
            "serving",
        ]


def test_a_worker_in_somebody_elses_process_leaves_its_manager_alone(
    open_worker: OpenWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the console script speaks to one; the variable stays where it is."""
    with Manager() as manager:
        monkeypatch.setenv("NOTIFY_SOCKET", manager.name)
        with open_worker() as worker:
            worker.open()
        assert manager.read_all() == []
        assert os.environ["NOTIFY_SOCKET"] == manager.name
