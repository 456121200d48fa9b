"""Sleep and wake of a worker: who is served, what may be asked, and every way back to serving."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from dynamo.llm.exceptions import EngineShutdown, InvalidArgument, Unknown

from protocols.telemetry import WorkerState
from service.maintenance import Rest
from service.telemetry.recorder import RecorderSettings, build_recorder
from tests.doubles.callers import wire_request
from tests.doubles.engines import ScriptedEngine
from tests.doubles.maintenance import MEMORIES, Fate, SleepyEngine
from tests.service.telemetry.readings import samples_of
from tests.service.worker import synthetic

if TYPE_CHECKING:
    from tests.service.conftest import OpenWorker
    from tests.service.worker import FacadeWorker

PROBE = {"_HEALTH_CHECK": True}


def memory_of(worker: FacadeWorker) -> tuple[str, list[str]]:
    """What the status says of it."""
    status = worker.control("status")
    return status["memory"], status["asleep"]


def check_serving(worker: FacadeWorker, engine: ScriptedEngine) -> None:
    """It is listed, and a request gets through."""
    status = worker.control("status")
    assert (status["state"], status["memory"], status["in_discovery"]) == ("serving", "awake", True)
    call = worker.ask(wire_request())
    worker.until(lambda: engine.live)
    (number,) = worker.loop.call(lambda: tuple(engine.live))
    worker.finish(int(number))
    assert call.read_to_end().finish_reasons == ["stop"]


def test_a_worker_sleeps_and_wakes(open_worker: OpenWorker) -> None:
    """Out of discovery and without its memory, then serving again; both answers are the status."""
    engine = SleepyEngine()
    with open_worker(engine) as worker:
        worker.open()
        asleep = worker.control("fall_asleep")
        assert (asleep["state"], asleep["memory"], asleep["asleep"]) == ("drained", "asleep", ["kv_cache"])
        assert (asleep["in_discovery"], asleep["safe_to_delete"]) == (False, True)
        assert engine.maintenance.gone == {"kv_cache"}
        awake = worker.control("wake")
        assert (awake["state"], awake["memory"], awake["asleep"]) == ("serving", "awake", [])
        assert worker.events == ["unregister", "register"]
        assert engine.maintenance.gone == set()
        check_serving(worker, engine)


def test_metrics_show_which_memories_are_given_back(open_worker: OpenWorker) -> None:
    """Each kind has its series from the start; of a call that failed all that it named may be gone."""
    engine = SleepyEngine()
    settings = RecorderSettings(
        engine="trtllm", framework_version="1", version="1", environ={}, maintenance=engine.maintenance
    )
    recorder = build_recorder(settings)

    def asleep() -> set[str]:
        found = {name: value for name, value in samples_of(recorder.registry).items() if "asleep" in name}
        assert found.keys() == {f'memory_asleep{{memory="{memory}"}}' for memory in MEMORIES}
        return {memory for memory in MEMORIES if found[f'memory_asleep{{memory="{memory}"}}']}

    with open_worker(engine, recorder=recorder) as worker:
        assert asleep() == set()
        worker.open()
        worker.control("fall_asleep", memories=["kv_cache", "model_weights"])
        assert asleep() == {"kv_cache", "model_weights"}
        engine.maintenance.fates = [Fate.HALF]
        with pytest.raises(Unknown):
            worker.control("wake")
        assert asleep() == set(worker.control("status")["asleep"]) != set()
        worker.control("wake")
        assert asleep() == set()


def test_more_memory_may_follow_and_what_sleeps_is_left_alone(open_worker: OpenWorker) -> None:
    """Named once or twice; all of it comes back at once."""
    engine = SleepyEngine()
    with open_worker(engine) as worker:
        worker.open()
        worker.control("fall_asleep", memories=["kv_cache", "kv_cache"])
        worker.control("fall_asleep", memories=["kv_cache"])
        assert engine.maintenance.calls == ["sleep"]
        worker.control("fall_asleep", memories=["model", "kv_cache"])
        assert memory_of(worker) == ("asleep", ["kv_cache", "model"])
        worker.control("wake")
        check_serving(worker, engine)


def test_who_is_live_finishes_before_anything_is_given_back(open_worker: OpenWorker) -> None:
    """And who comes meanwhile, or later, is sent elsewhere in the words of a drain."""
    engine = SleepyEngine()
    with open_worker(engine) as worker:
        worker.open()
        first = worker.ask(wire_request())
        worker.until(lambda: engine.live)
        sleeping = worker.loop.begin(worker.facade.engine_control("fall_asleep", {}))
        worker.until(lambda: worker.graph.drain.state is WorkerState.DRAINING)
        assert memory_of(worker) == ("pausing", [])
        assert isinstance(worker.generate(wire_request()).read_to_end().error, EngineShutdown)
        worker.finish(1)
        assert first.read_to_end().finish_reasons == ["stop"]
        assert sleeping.result(10)["memory"] == "asleep"
        assert isinstance(worker.generate(wire_request()).read_to_end().error, EngineShutdown)


def test_a_sleep_with_a_budget_of_its_own_ends_who_is_left(open_worker: OpenWorker) -> None:
    """As a drain with it: interrupted, so that a frontend can go on elsewhere."""
    engine = SleepyEngine()
    with open_worker(engine) as worker:
        worker.open()
        call = worker.ask(wire_request())
        worker.until(lambda: engine.live)
        sleeping = worker.loop.begin(worker.facade.engine_control("fall_asleep", {"timeout_s": 0}))
        assert isinstance(call.read_to_end().error, EngineShutdown)
        assert sleeping.result(10)["memory"] == "asleep"
        assert worker.outcomes == {"interrupted": 1}


def test_nothing_is_given_back_while_the_engine_holds_something(
    open_worker: OpenWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a cache that may still be fetched: the worker is out of service, and may be asked again."""
    monkeypatch.setattr("service.maintenance.SETTLE_S", 0.05)
    engine = SleepyEngine()
    with open_worker(engine) as worker:
        worker.open()
        engine.pending_transfers = 1
        with pytest.raises(Exception, match="has not let go"):
            worker.control("fall_asleep", timeout_s=0)
        assert memory_of(worker) == ("half_asleep", [])
        assert engine.maintenance.calls == []
        engine.pending_transfers = 0
        worker.control("fall_asleep")
        assert memory_of(worker) == ("asleep", ["kv_cache"])
        worker.control("wake")
        check_serving(worker, engine)


@pytest.mark.parametrize("name", ["fall_asleep", "wake"])
@pytest.mark.parametrize("make", [synthetic, ScriptedEngine])
def test_an_engine_that_cannot_is_refused_by_name(
    open_worker: OpenWorker, name: str, make: type[ScriptedEngine]
) -> None:
    """The routes are there; nothing has happened."""
    with open_worker(make()) as worker:
        worker.open()
        with pytest.raises(InvalidArgument, match=rf"^(sleep|wake): 'engine {worker.engine.name}' is not"):
            worker.control(name)
        assert worker.events == []
        assert worker.control("status")["state"] == "serving"


@pytest.mark.parametrize("name", ["update_weights", "profile", "reset_cache"])
def test_what_no_engine_here_can_do_is_refused_by_name(open_worker: OpenWorker, name: str) -> None:
    """Whatever the body says, and with the engine there is."""
    with open_worker() as worker:
        worker.open()
        with pytest.raises(InvalidArgument, match=f"^{name}: 'engine synthetic' .* no public call for it"):
            worker.control(name, path="/weights")


@pytest.mark.parametrize(
    "body",
    [
        {"memories": []},
        {"memories": "kv_cache"},
        {"memories": None},
        {"memories": ["kv_cache", 5]},
        {"memories": ["kvcache"]},
        {"timeout_s": -1},
        {"timeout_s": "5"},
        {"tags": ["kv_cache"]},
    ],
)
def test_a_body_that_is_not_understood_changes_nothing(open_worker: OpenWorker, body: dict[str, Any]) -> None:
    """The worker serves on, and is listed."""
    engine = SleepyEngine()
    with open_worker(engine) as worker:
        worker.open()
        with pytest.raises(Exception, match=r"^(memories|timeout_s|key|'kvcache')"):
            worker.control("fall_asleep", **body)
        assert worker.events == []
        check_serving(worker, engine)


def test_what_the_engine_refuses_it_refuses_before_the_drain(open_worker: OpenWorker) -> None:
    """A worker is not taken out of service for nothing."""
    engine = SleepyEngine()
    engine.maintenance.refusal = "sleep_config is not set"
    with open_worker(engine) as worker:
        worker.open()
        with pytest.raises(Exception, match="sleep_config is not set"):
            worker.control("fall_asleep")
        assert worker.events == []
        check_serving(worker, engine)


def test_resume_is_refused_while_asleep_with_the_word_wake(open_worker: OpenWorker) -> None:
    """A worker without its memory must not open its door."""
    engine = SleepyEngine()
    with open_worker(engine) as worker:
        worker.open()
        worker.control("fall_asleep")
        with pytest.raises(InvalidArgument, match=r"while asleep.*wake"):
            worker.control("resume")
        assert worker.control("status")["state"] == "drained"
        worker.control("wake")
        check_serving(worker, engine)


@pytest.mark.parametrize("is_before", [True, False])
def test_who_is_drained_by_hand_stays_so_after_wake(open_worker: OpenWorker, is_before: bool) -> None:
    """Two wishes, each with an end of its own: `wake`, and then `resume`."""
    engine = SleepyEngine()
    with open_worker(engine) as worker:
        worker.open()
        for name in ["drain", "fall_asleep"] if is_before else ["fall_asleep", "drain"]:
            worker.control(name)
        awake = worker.control("wake")
        assert (awake["state"], awake["memory"]) == ("drained", "awake")
        worker.control("resume")
        check_serving(worker, engine)
        worker.control("fall_asleep")
        worker.control("wake")
        check_serving(worker, engine)


def test_wake_of_a_worker_that_is_awake_is_nothing_new(open_worker: OpenWorker) -> None:
    """Asking twice does not hurt, and does not undo a drain by hand."""
    engine = SleepyEngine()
    with open_worker(engine) as worker:
        worker.open()
        assert worker.control("wake")["state"] == "serving"
        worker.control("drain")
        assert worker.control("wake")["state"] == "drained"
        assert engine.maintenance.calls == []


@pytest.mark.parametrize(("first", "state"), [("fall_asleep", Rest.PAUSING), ("wake", Rest.WAKING)])
@pytest.mark.parametrize("second", ["fall_asleep", "wake", "resume"])
def test_a_change_that_is_under_way_is_not_disturbed(
    open_worker: OpenWorker, first: str, state: Rest, second: str
) -> None:
    """Refused by the name of the state, and the first caller gets his answer."""
    engine = SleepyEngine()
    with open_worker(engine) as worker:
        worker.open()
        if first == "wake":
            worker.control("fall_asleep")
        engine.maintenance.fate = Fate.WAITS
        calls = len(engine.maintenance.calls)
        changing = worker.loop.begin(worker.facade.engine_control(first, {}))
        worker.until(lambda: len(engine.maintenance.calls) > calls)
        with pytest.raises(InvalidArgument, match=f"while {state.value}"):
            worker.control(second)
        worker.loop.call(engine.maintenance.may_return.set)
        assert changing.result(10)["memory"] == {"fall_asleep": "asleep", "wake": "awake"}[first]


def test_before_the_start_nothing_sleeps(open_worker: OpenWorker) -> None:
    """There is no memory to give back yet."""
    with open_worker(SleepyEngine()) as worker:
        for name in ("fall_asleep", "wake"):
            with pytest.raises(InvalidArgument, match="while starting"):
                worker.control(name)


@pytest.mark.parametrize(("out", "back"), [("fall_asleep", "wake"), ("drain", "resume")])
def test_a_health_probe_is_answered_without_the_engine(open_worker: OpenWorker, out: str, back: str) -> None:
    """A worker is not killed for being out of service; afterwards its engine has to work for the answer."""
    engine = SleepyEngine()
    with open_worker(engine) as worker:
        worker.open()
        worker.control(out)
        for _ in range(3):
            assert worker.generate(wire_request(**PROBE)).read_to_end().finish_reasons == ["length"]
        assert engine.submitted == {}
        worker.control(back)
        probe = worker.ask(wire_request(**PROBE))
        worker.until(lambda: engine.live)
        (number,) = engine.live
        worker.finish(int(number))
        assert probe.read_to_end().finish_reasons == ["stop"]
