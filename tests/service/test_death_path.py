"""One death path: out of discovery, everybody told, SIGTERM to ourselves, code 70. Never half alive."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from dynamo.llm.exceptions import EngineShutdown

from protocols.errors import EngineDead, GenerationFailed
from protocols.steps import EngineId
from protocols.telemetry import WorkerState
from service.death import DeathPath, _root_causes
from service.discovery import Discovery
from service.exit_codes import ExitCode
from service.stopping import StopSignals
from service.verdict import exit_code
from tests.doubles.bridge import PATIENCE_S
from tests.doubles.callers import wire_request
from tests.doubles.endpoints import HangingEndpoint, RefusingEndpoint
from tests.doubles.engines import ScriptedEngine

if TYPE_CHECKING:
    from collections.abc import Callable

    from protocols.steps import EngineStep
    from tests.service.conftest import OpenWorker


class Panic(BaseException):
    """What a library in Rust raises when it panics: no Exception."""


class Panics(ScriptedEngine):
    """Dies by something that is not even an Exception."""

    name = "panics"

    def __init__(self) -> None:
        super().__init__()
        self.is_panicking = False

    async def next_step(self) -> EngineStep:
        step = await super().next_step()
        if self.is_panicking:
            raise Panic("index out of bounds")
        return step

    def die(self, cause: BaseException | None = None) -> None:
        self.is_panicking = True
        self.emit()


@pytest.mark.parametrize("make_engine", [ScriptedEngine, Panics])
def test_a_dead_engine_ends_the_worker_in_order(
    open_worker: OpenWorker, make_engine: Callable[[], ScriptedEngine]
) -> None:
    """Discovery first, then every request gets EngineShutdown, then SIGTERM; the code is 70."""
    engine = make_engine()
    with open_worker(engine) as worker:
        worker.open()
        calls = [worker.ask(wire_request()) for _ in range(5)]
        worker.until(lambda: len(engine.live) == 5)
        worker.loop.call(engine.die)
        for call in calls:
            call.read_to_end()
            assert isinstance(call.error, EngineShutdown)
        worker.until(lambda: len(worker.events) == 2)
        assert worker.events == ["unregister", "signal SIGTERM"]
        assert worker.outcomes == {"failed": 5}
        assert worker.recorder.states.count(WorkerState.FAILED) == 1
        assert worker.control("status")["state"] == "failed"
        worker.cleanup()
        assert engine.stops == 1
        assert exit_code(worker.facade, worker.signals, None) is ExitCode.FORCED


def test_a_crashed_actor_ends_the_worker_just_so(
    open_worker: OpenWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug in an actor is no better than a dead engine."""
    engine = ScriptedEngine()
    with open_worker(engine) as worker:
        worker.open()
        call = worker.ask(wire_request())
        worker.until(lambda: engine.live)

        def breaks(_streamer: object, _step: object) -> None:
            raise KeyError("a bug")

        monkeypatch.setattr("actors.streamer.ChunkStreamer.on_step", breaks)
        worker.say(1, 5)
        call.read_to_end()
        assert isinstance(call.error, EngineShutdown)
        worker.until(lambda: "signal SIGTERM" in worker.events)
        assert worker.facade.death.is_dead
        monkeypatch.undo()


def test_a_request_after_the_death_is_sent_elsewhere(open_worker: OpenWorker) -> None:
    """Until the process has ended it answers, with EngineShutdown."""
    engine = ScriptedEngine()
    with open_worker(engine) as worker:
        worker.open()
        worker.loop.call(engine.die)
        worker.until(lambda: "signal SIGTERM" in worker.events)
        call = worker.generate(wire_request()).read_to_end()
        assert isinstance(call.error, EngineShutdown)


def test_tokens_before_the_death_are_delivered(open_worker: OpenWorker) -> None:
    """A frontend continues elsewhere from what it got: that must be all there was."""
    engine = ScriptedEngine()
    with open_worker(engine) as worker:
        worker.open()
        call = worker.ask(wire_request())
        worker.until(lambda: engine.live)

        def say_and_die() -> None:
            engine.say(EngineId(1), 1, 2, 3)
            engine.die()

        worker.loop.call(say_and_die)
        call.read_to_end()
        assert call.tokens == [1, 2, 3]
        assert isinstance(call.error, EngineShutdown)


@pytest.mark.parametrize("error", [RuntimeError("no route"), Panic("poisoned")], ids=["error", "panic"])
def test_a_store_that_refuses_does_not_keep_the_worker_alive(
    open_worker: OpenWorker, error: BaseException
) -> None:
    """Whatever leaving discovery says, the signal follows."""
    engine = ScriptedEngine()
    with open_worker(engine) as worker:
        worker.start()
        worker.loop.run(worker.facade.on_endpoint_ready(RefusingEndpoint(worker.events, error)))
        worker.loop.call(engine.die)
        worker.until(lambda: worker.events == ["unregister", "signal SIGTERM"])


def test_a_store_that_hangs_does_not_keep_the_worker_alive(
    open_worker: OpenWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leaving discovery is bounded, even when the call cannot be cancelled."""
    monkeypatch.setattr("service.discovery.STORE_S", 0.05)
    engine = ScriptedEngine()
    with open_worker(engine) as worker:
        worker.start()
        endpoint = HangingEndpoint(worker.events)
        worker.loop.run(worker.facade.on_endpoint_ready(endpoint))
        worker.loop.call(engine.die)
        worker.until(lambda: worker.events == ["unregister", "signal SIGTERM"])
        worker.loop.call(endpoint.let_return)


def test_drains_before_a_store_that_hangs_do_not_hold_the_death_up(
    open_worker: OpenWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight wait for it, and it never answers: the signal comes after one answer's time."""
    monkeypatch.setattr("service.death.STORE_S", 0.05)
    monkeypatch.setattr("service.discovery.STORE_S", PATIENCE_S)
    engine = ScriptedEngine()
    with open_worker(engine) as worker:
        worker.start()
        endpoint = HangingEndpoint(worker.events)
        worker.loop.run(worker.facade.on_endpoint_ready(endpoint))
        drains = [worker.loop.begin(worker.facade.engine_control("drain", {})) for _ in range(8)]
        worker.until(lambda: worker.events == ["unregister"])
        worker.loop.call(engine.die)
        worker.until(lambda: "signal SIGTERM" in worker.events)
        assert worker.events == ["unregister", "signal SIGTERM"]
        worker.loop.call(endpoint.let_return)
        assert [drain.result(PATIENCE_S)["safe_to_delete"] for drain in drains] == [False] * 8


@pytest.mark.parametrize("moment", ["dead", "after the end"])
def test_a_signal_too_many_changes_no_state(open_worker: OpenWorker, moment: str) -> None:
    """A dead worker has failed and an ended one is stopping: nobody drains any more."""
    engine = ScriptedEngine()
    with open_worker(engine) as worker:
        worker.open()
        if moment == "dead":
            worker.loop.call(engine.die)
            worker.until(lambda: "signal SIGTERM" in worker.events)
        else:
            worker.send_signal()
            worker.cleanup()
        states, drains = list(worker.recorder.states), list(worker.recorder.drain_reports)
        worker.send_signal()
        worker.loop.call(lambda: None)
        assert worker.recorder.states == states
        assert worker.recorder.drain_reports == drains


def test_a_death_before_the_endpoint_is_known_ends_the_worker_too(open_worker: OpenWorker) -> None:
    """Between the start and the registration there is nothing to leave."""
    engine = ScriptedEngine()
    with open_worker(engine) as worker:
        worker.start()
        worker.loop.call(engine.die)
        worker.until(lambda: worker.events == ["signal SIGTERM"])


def test_a_death_during_the_cleanup_frees_everybody(open_worker: OpenWorker) -> None:
    """The engine dies while the drain waits for it: the drain is over, no second signal, code 70."""
    engine = ScriptedEngine()
    with open_worker(engine) as worker:
        worker.open()
        calls = [worker.ask(wire_request()) for _ in range(3)]
        worker.until(lambda: len(engine.live) == 3)
        worker.send_signal()
        cleanup = worker.begin_cleanup()
        worker.until(lambda: worker.graph.drain.state is WorkerState.DRAINING)
        worker.loop.call(engine.die)
        for call in calls:
            call.read_to_end()
            assert isinstance(call.error, EngineShutdown)
        cleanup.result(5)
        assert worker.events == ["unregister"]
        assert exit_code(worker.facade, worker.signals, None) is ExitCode.FORCED


def test_a_drain_by_hand_of_a_worker_that_dies_comes_back(open_worker: OpenWorker) -> None:
    """The control route answers, with the state it found."""
    engine = ScriptedEngine()
    with open_worker(engine) as worker:
        worker.open()
        call = worker.ask(wire_request())
        worker.until(lambda: engine.live)
        draining = worker.loop.begin(worker.facade.engine_control("drain", {}))
        worker.until(lambda: worker.graph.drain.state is WorkerState.DRAINING)
        worker.loop.call(engine.die)
        assert draining.result(5)["state"] == "failed"
        call.read_to_end()


def test_the_first_cause_is_the_one_that_is_kept() -> None:
    """Whatever breaks next broke because of the first."""

    async def main() -> None:
        signals = StopSignals()
        signals.note()
        death = DeathPath(signals, Discovery(lambda: False, lambda: None))
        first = EngineDead("first")
        death.on_crash(first)
        death.on_crash(EngineDead("second"))
        assert death.cause is first
        await asyncio.sleep(0)

    asyncio.run(main())


def test_root_causes_are_below_groups_and_wrappers() -> None:
    """The log line names what really happened: ours in its words, others by type and place, no content."""
    wrapped = EngineDead("the engine died")
    try:
        raise ValueError("a token of somebody's prompt")
    except ValueError as exc:
        wrapped.__cause__ = exc
    ours = GenerationFailed("the engine ended without a reason")
    group = ExceptionGroup("actors", [wrapped, ExceptionGroup("more", [ours, KeyError("content")])])
    first, *others = _root_causes(group)
    assert first.startswith("ValueError at test_death_path.py:")
    assert others == ["GenerationFailed: the engine ended without a reason", "KeyError"]


def test_root_causes_are_at_most_eight() -> None:
    """A thousand crashed tasks make one line."""
    assert len(_root_causes(ExceptionGroup("many", [ValueError(str(i)) for i in range(1000)]))) == 8


def test_root_causes_of_a_circle_come_to_an_end() -> None:
    """An exception that is its own cause must not keep the dead worker thinking."""
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    assert len(_root_causes(one)) <= 8
