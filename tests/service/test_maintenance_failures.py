"""Sleep and wake that go wrong: nothing serves without its memory, and everything can be tried again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from dynamo.llm.exceptions import EngineShutdown, InvalidArgument

from protocols.telemetry import WorkerState
from tests.doubles.callers import wire_request
from tests.doubles.maintenance import Fate, SleepyEngine
from tests.service.test_maintenance import PROBE, check_serving, memory_of

if TYPE_CHECKING:
    from tests.service.conftest import OpenWorker

BOTH = ["kv_cache", "model_weights"]
FAILING = [Fate.FAILS, Fate.HALF, Fate.RAISES, Fate.CANCELLED]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What hangs in these tests is given up soon."""
    monkeypatch.setattr("service.maintenance_call.CALL_S", 0.05)
    monkeypatch.setattr("service.maintenance_call._LET_GO_S", 0.02)


@pytest.mark.parametrize("fate", FAILING)
def test_after_a_sleep_that_failed_wake_brings_the_worker_back(open_worker: OpenWorker, fate: Fate) -> None:
    """Until then it serves nobody, and says that nobody knows what is there."""
    engine = SleepyEngine()
    with open_worker(engine) as worker:
        worker.open()
        engine.maintenance.fate = fate
        with pytest.raises(Exception, match="sleep: "):
            worker.control("fall_asleep", memories=BOTH)
        assert memory_of(worker) == ("half_asleep", BOTH)
        assert isinstance(worker.generate(wire_request()).read_to_end().error, EngineShutdown)
        with pytest.raises(InvalidArgument, match="wake"):
            worker.control("resume")
        engine.maintenance.fate = Fate.WORKS
        worker.control("wake")
        check_serving(worker, engine)


@pytest.mark.parametrize("fate", FAILING)
def test_a_sleep_that_failed_may_be_tried_again(open_worker: OpenWorker, fate: Fate) -> None:
    """The second time it sleeps."""
    engine = SleepyEngine()
    with open_worker(engine) as worker:
        worker.open()
        engine.maintenance.fate = fate
        with pytest.raises(Exception, match="sleep: "):
            worker.control("fall_asleep", memories=BOTH)
        engine.maintenance.fate = Fate.WORKS
        worker.control("fall_asleep", memories=BOTH)
        assert memory_of(worker) == ("asleep", BOTH)
        assert engine.maintenance.gone == set(BOTH)


@pytest.mark.parametrize("fate", FAILING)
def test_a_wake_that_failed_may_be_tried_again(open_worker: OpenWorker, fate: Fate) -> None:
    """The worker is not back before all of its memory is."""
    engine = SleepyEngine()
    with open_worker(engine) as worker:
        worker.open()
        worker.control("fall_asleep", memories=BOTH)
        engine.maintenance.fate = fate
        with pytest.raises(Exception, match="wake: "):
            worker.control("wake")
        assert memory_of(worker) == ("half_asleep", BOTH)
        assert worker.control("status")["in_discovery"] is False
        engine.maintenance.fate = Fate.WORKS
        worker.control("wake")
        check_serving(worker, engine)


def test_the_words_of_a_failure_are_the_operators_and_those_of_a_bug_are_not(open_worker: OpenWorker) -> None:
    """What an engine says on purpose is told; of anything else, the type."""
    engine = SleepyEngine()
    with open_worker(engine) as worker:
        worker.open()
        engine.maintenance.fate = Fate.FAILS
        with pytest.raises(Exception, match=r"^sleep: no$"):
            worker.control("fall_asleep")
        engine.maintenance.fate = Fate.RAISES
        with pytest.raises(Exception, match=r"^sleep: RuntimeError$"):
            worker.control("fall_asleep")


@pytest.mark.parametrize("fate", [Fate.WAITS, Fate.HANGS])
def test_a_call_that_hangs_is_not_waited_for_for_ever(open_worker: OpenWorker, fate: Fate) -> None:
    """It may heed that it is cancelled or not: no other is made beside it, and after it `wake` works."""
    engine = SleepyEngine()
    with open_worker(engine) as worker:
        worker.open()
        engine.maintenance.fate = fate
        with pytest.raises(Exception, match="no answer within"):
            worker.control("fall_asleep")
        assert memory_of(worker) == ("half_asleep", ["kv_cache"])
        if fate is Fate.HANGS:
            with pytest.raises(Exception, match="has not come back"):
                worker.control("wake")
        engine.maintenance.fate = Fate.WORKS
        worker.loop.call(engine.maintenance.may_return.set)
        worker.until(lambda: not engine.maintenance.is_busy)
        worker.control("wake")
        check_serving(worker, engine)


@pytest.mark.parametrize("name", ["fall_asleep", "wake"])
def test_a_change_goes_on_when_its_caller_hangs_up(open_worker: OpenWorker, name: str) -> None:
    """Half of a change would help nobody."""
    engine = SleepyEngine()
    with open_worker(engine) as worker:
        worker.open()
        if name == "wake":
            worker.control("fall_asleep")
        calls = len(engine.maintenance.calls)
        engine.maintenance.fate = Fate.WAITS
        changing = worker.loop.begin(worker.facade.engine_control(name, {}))
        worker.until(lambda: len(engine.maintenance.calls) > calls)
        changing.cancel()
        worker.loop.call(engine.maintenance.may_return.set)
        there = {"fall_asleep": "asleep", "wake": "awake"}[name]
        worker.until(lambda: worker.facade._controls.sleeper.state == there)
        if name == "wake":
            worker.until(lambda: worker.facade.discovery.is_listed)
            check_serving(worker, engine)


@pytest.mark.parametrize("fate", [Fate.WORKS, Fate.HALF, Fate.HANGS])
def test_a_signal_while_asleep_ends_the_worker_in_order(open_worker: OpenWorker, fate: Fate) -> None:
    """Asleep, half asleep, or in the midst of a call: cleanup returns, and the engine is stopped once."""
    engine = SleepyEngine()
    with open_worker(engine) as worker:
        worker.open()
        engine.maintenance.fate = fate
        if fate is Fate.WORKS:
            worker.control("fall_asleep")
        else:
            with pytest.raises(Exception, match="sleep: "):
                worker.control("fall_asleep")
        worker.send_signal()
        for name in ("fall_asleep", "wake", "resume"):
            with pytest.raises(InvalidArgument, match="while stopping"):
                worker.control(name)
        worker.cleanup()
        assert engine.stops == 1
        assert "register" not in worker.events
        worker.loop.call(engine.maintenance.may_return.set)


def test_a_signal_while_pausing_gives_nothing_back(open_worker: OpenWorker) -> None:
    """The drain is the shutdown's from then on."""
    engine = SleepyEngine()
    with open_worker(engine) as worker:
        worker.open()
        call = worker.ask(wire_request())
        worker.until(lambda: engine.live)
        sleeping = worker.loop.begin(worker.facade.engine_control("fall_asleep", {}))
        worker.until(lambda: worker.graph.drain.state is WorkerState.DRAINING)
        worker.send_signal()
        cleanup = worker.begin_cleanup()
        worker.finish(1)
        assert call.read_to_end().finish_reasons == ["stop"]
        with pytest.raises(Exception, match="stopping"):
            sleeping.result(10)
        cleanup.result(10)
        assert engine.maintenance.calls == []


def test_a_signal_while_waking_leaves_the_door_shut(open_worker: OpenWorker) -> None:
    """The memory comes back; the worker does not."""
    engine = SleepyEngine()
    with open_worker(engine) as worker:
        worker.open()
        worker.control("fall_asleep")
        engine.maintenance.fate = Fate.WAITS
        waking = worker.loop.begin(worker.facade.engine_control("wake", {}))
        worker.until(lambda: len(engine.maintenance.calls) == 2)
        worker.send_signal()
        worker.loop.call(engine.maintenance.may_return.set)
        assert waking.result(10)["state"] == "drained"
        assert "register" not in worker.events


def test_an_engine_that_dies_in_its_sleep_ends_the_worker(open_worker: OpenWorker) -> None:
    """Nobody vouches for it then: probes fail, and it is neither woken nor resumed."""
    engine = SleepyEngine()
    with open_worker(engine) as worker:
        worker.open()
        worker.control("fall_asleep")
        worker.loop.call(engine.die)
        worker.until(lambda: worker.facade.death.is_dead)
        assert isinstance(worker.generate(wire_request(**PROBE)).read_to_end().error, EngineShutdown)
        with pytest.raises(InvalidArgument, match="while stopping"):
            worker.control("wake")
        assert worker.control("status")["safe_to_delete"] is False
