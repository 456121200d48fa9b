"""The facade's life: start and cleanup in every order the framework may call them."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from dynamo.llm.exceptions import EngineShutdown

from protocols.errors import EngineStartError, StartStopped
from service.engine import ActorEngine
from service.options import ConfigError
from tests.doubles.callers import wire_request
from tests.doubles.engines import FailsToStart, ScriptedEngine, SlowStart
from tests.e2e.word_model import write_word_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.service.conftest import OpenWorker

FOREVER_S = 3600.0


def test_cleanup_without_start_does_nothing(open_worker: OpenWorker) -> None:
    """The framework may clean up what it never started."""
    with open_worker() as worker:
        worker.cleanup()
        worker.cleanup()


def test_the_start_says_what_the_engine_is(open_worker: OpenWorker) -> None:
    """What the frontend must know of the engine is in the config that start returns."""
    with open_worker() as worker:
        config = worker.start()
        assert (config.model, config.served_model_name) == ("model", "served")
        assert config.llm.context_length == worker.graph.info.context_length
        assert config.llm.max_num_seqs == worker.graph.info.max_num_seqs
        assert worker.recorder.watched == [worker.graph]


def test_cleanup_stops_the_engine_once_however_often_it_is_called(open_worker: OpenWorker) -> None:
    """Two cleanups one after the other stop one engine, once."""
    engine = ScriptedEngine()
    with open_worker(engine) as worker:
        worker.start()
        worker.cleanup()
        worker.cleanup()
        assert (engine.starts, engine.stops) == (1, 1)
        assert worker.recorder.shutdowns == 1


def test_cleanups_that_overlap_end_together(open_worker: OpenWorker) -> None:
    """A second cleanup while the first is under way waits with it and breaks nothing."""
    engine = ScriptedEngine()
    with open_worker(engine) as worker:
        worker.start()
        first = worker.begin_cleanup()
        worker.until(lambda: worker.graph.drain.state.value == "drained")
        worker.cleanup()
        first.result(5)
        assert engine.stops == 1


def test_a_failed_start_is_raised_and_can_be_cleaned_up(open_worker: OpenWorker) -> None:
    """The engine's own words reach the caller, and are kept for the exit code."""
    engine = FailsToStart()
    with open_worker(engine) as worker:
        with pytest.raises(EngineStartError, match="nowhere"):
            worker.start()
        assert isinstance(worker.facade.start_failure, EngineStartError)
        worker.cleanup()
        assert engine.stops == 1


def test_a_cancelled_start_ends_with_the_cleanup(open_worker: OpenWorker) -> None:
    """Cleanup does not wait for a model that nobody wants any more."""
    engine = SlowStart(FOREVER_S)
    with open_worker(engine) as worker:
        starting = worker.begin_start()
        worker.until(lambda: engine.starts == 1)
        starting.cancel()
        with pytest.raises(CancelledError):
            starting.result(5)
        worker.until(lambda: worker.facade.start_failure is not None)
        worker.cleanup()
        assert engine.stops == 1


def test_a_signal_before_the_start_prevents_it(open_worker: OpenWorker) -> None:
    """Asked to stop before the start: the engine is never loaded."""
    engine = ScriptedEngine()
    with open_worker(engine) as worker:
        worker.send_signal()
        with pytest.raises(StartStopped):
            worker.start()
        assert engine.starts == 0


@pytest.mark.parametrize("signals", [1, 2, 3])
def test_a_signal_during_the_start_ends_it(open_worker: OpenWorker, signals: int) -> None:
    """However often the operator asks, the load ends, the engine is stopped whole, and the start says why."""
    engine = SlowStop(FOREVER_S)
    with open_worker(engine) as worker:
        starting = worker.begin_start()
        worker.until(lambda: engine.starts == 1)
        worker.send_signal()
        worker.until(lambda: engine.is_stopping)
        for _ in range(signals - 1):
            worker.send_signal()
        worker.loop.call(engine.let_stop)
        with pytest.raises(StartStopped):
            starting.result(5)
        assert engine.has_stopped


def test_a_signal_at_the_first_moment_of_the_start_ends_it(open_worker: OpenWorker) -> None:
    """The start is under way but has not reached the engine: it must not wait for what will never come."""
    with open_worker(SlowStart(FOREVER_S)) as worker:
        supervisor_created = []
        listen = worker.signals.listen

        def listen_and_signal(listener: object) -> None:
            listen(listener)  # type: ignore[arg-type]
            supervisor_created.append(True)
            # The handler runs in the main thread between two instructions of start(): its callback is in the
            # loop's queue before the supervisor's task is.
            worker.signals.listen = listen  # type: ignore[method-assign]
            worker.facade._on_signal_anywhere(1)

        worker.signals.listen = listen_and_signal  # type: ignore[method-assign]
        with pytest.raises(StartStopped):
            worker.start()


def test_generate_before_the_start_fails_at_its_first_step(open_worker: OpenWorker) -> None:
    """The call itself never raises: that would take the instance out of the frontend's routing."""
    with open_worker() as worker:
        call = worker.generate(wire_request(max_tokens=1))
        assert call.step() is None
        assert isinstance(call.error, EngineShutdown)


def test_generate_after_cleanup_fails_at_its_first_step(open_worker: OpenWorker) -> None:
    """Also of a worker that has stopped."""
    with open_worker() as worker:
        worker.start()
        worker.cleanup()
        call = worker.generate(wire_request(max_tokens=1))
        assert call.step() is None
        assert isinstance(call.error, EngineShutdown)


def test_abort_before_start_and_after_cleanup_does_nothing(open_worker: OpenWorker) -> None:
    """An abort that comes at the wrong end of the worker's life is nobody's problem."""
    with open_worker() as worker:
        call = worker.generate(wire_request(max_tokens=1))
        worker.abort(call.client)
        worker.start()
        worker.cleanup()
        worker.abort(call.client)


def test_a_call_that_is_never_stepped_costs_nothing(open_worker: OpenWorker) -> None:
    """A generator that is dropped before its first step was never a request."""
    with open_worker() as worker:
        worker.start()
        worker.generate(wire_request(max_tokens=1)).drop()
        assert worker.graph.ledger.started == 0
        assert worker.facade.open_readers == 0


def test_an_engine_that_cannot_stop_is_named(
    open_worker: OpenWorker, caplog: pytest.LogCaptureFixture
) -> None:
    """Everybody has been served; what broke while stopping is in the log, and cleanup returns."""
    with open_worker(BreaksOnStop()) as worker:
        worker.open()
        worker.cleanup()
    assert any("the device is lost" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("make_engine", [ScriptedEngine, FailsToStart])
def test_a_cleanup_that_went_well_says_nothing(
    open_worker: OpenWorker, caplog: pytest.LogCaptureFixture, make_engine: Callable[[], ScriptedEngine]
) -> None:
    """Nor does that of a failed start, whose error was raised already."""
    with open_worker(make_engine()) as worker:
        with suppress(EngineStartError):
            worker.start()
        worker.cleanup()
    assert caplog.records == []


def test_from_args_puts_a_worker_together_and_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The contract's way in: what the framework must see is in the environment, and nothing runs."""
    environ = {"PATH": os.environ["PATH"]}
    monkeypatch.setattr("service.serving.os.environ", environ)
    model = write_word_model(tmp_path / "model")
    engine, config = asyncio.run(ActorEngine.from_args(["--engine", "synthetic", "--model", str(model)]))
    assert config is engine.worker_config
    assert config.model_name == str(model)
    assert not engine.was_started
    assert engine.graph is None
    assert environ["DYN_SYSTEM_HOST"] == "127.0.0.1"
    assert environ["DYN_WORKER_GRACEFUL_SHUTDOWN_TIMEOUT"] == "50"


def test_from_args_refuses_what_the_console_script_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an exception: the process is somebody else's."""
    monkeypatch.setattr("service.serving.os.environ", {})
    with pytest.raises(ConfigError, match="--max-live"):
        asyncio.run(ActorEngine.from_args(["--max-live", "0"]))


class BreaksOnStop(ScriptedEngine):
    """Cannot end what it began."""

    name = "breaks-on-stop"

    async def stop(self) -> None:
        await super().stop()
        raise RuntimeError("the device is lost")


class SlowStop(SlowStart):
    """Loads for ever, and stops when the test lets it; a stop that is cut short leaves children behind."""

    def __init__(self, start_s: float) -> None:
        super().__init__(start_s)
        self.is_stopping = False
        self.has_stopped = False
        self._may_stop = False

    def let_stop(self) -> None:
        self._may_stop = True
        self.wake()

    async def stop(self) -> None:
        await super().stop()
        self.is_stopping = True
        while not self._may_stop:
            await ScriptedEngine._advance(self)
        self.has_stopped = True
