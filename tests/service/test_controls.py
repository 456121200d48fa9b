"""The control routes of a running worker: whom they obey, how many at once, and what they refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from dynamo.llm.exceptions import HttpError, InvalidArgument

from protocols.bounds import Bound
from protocols.telemetry import WorkerState
from service.telemetry.recorder import RecorderSettings, build_recorder
from tests.doubles.callers import wire_request
from tests.doubles.engines import ScriptedEngine

if TYPE_CHECKING:
    from tests.service.conftest import OpenWorker

IMPOSSIBLE = {"update_weights", "profile", "reset_cache"}
SLEEPING = {"fall_asleep", "wake", "release_memory_occupation", "resume_memory_occupation"}
ROUTES = {"drain", "resume", "status", "trace", "log_level"} | SLEEPING | IMPOSSIBLE
TOKEN = "a long secret"


def test_so_many_may_wait_for_a_drain_and_no_more(
    open_worker: OpenWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever comes on top is told so at once, with the code for overload; the others get their answer."""
    monkeypatch.setattr("service.controls.MOST_CALLS", 2)
    engine = ScriptedEngine()
    with open_worker(engine) as worker:
        worker.open()
        call = worker.ask(wire_request())
        worker.until(lambda: engine.live)
        waiting = [worker.loop.begin(worker.facade.engine_control("drain", {})) for _ in range(2)]
        worker.until(lambda: worker.graph.drain.state is WorkerState.DRAINING)
        with pytest.raises(HttpError) as refusal:
            worker.control("drain")
        assert refusal.value.code == 429
        assert worker.recorder.bounds == {Bound.CONTROL_CALLS: 1}
        assert worker.control("status")["state"] == "draining"
        worker.finish(1)
        call.read_to_end()
        assert [one.result(10)["state"] for one in waiting] == ["drained"] * 2
        assert worker.control("drain")["state"] == "drained"


@pytest.mark.parametrize("name", ["nonsense", "", "status/", "STATUS"])
def test_an_unknown_route_is_refused_by_name(open_worker: OpenWorker, name: str) -> None:
    """With the names there are."""
    with open_worker() as worker:
        worker.open()
        with pytest.raises(
            InvalidArgument, match=r"one of drain, fall_asleep, log_level, profile, .*, update_weights, wake"
        ):
            worker.loop.run(worker.facade.engine_control(name, {}))


@pytest.mark.parametrize("body", [[], None, "drain", 5])
def test_a_body_that_is_no_object_is_refused(open_worker: OpenWorker, body: Any) -> None:
    """The framework passes a JSON list on as it is."""
    with open_worker() as worker:
        worker.open()
        with pytest.raises(InvalidArgument, match="JSON object"):
            worker.loop.run(worker.facade.engine_control("drain", body))


@pytest.mark.parametrize("name", ["drain", "fall_asleep", "resume", "status", "trace", "wake"])
def test_a_key_that_means_nothing_is_refused_by_name(open_worker: OpenWorker, name: str) -> None:
    """Whoever wrote it expects something of it; nothing has happened."""
    with open_worker() as worker:
        worker.open()
        with pytest.raises(InvalidArgument, match=r"^key: 'timeout' is not accepted: one of .*token$"):
            worker.control(name, timeout=5)
        assert worker.control("status", token="whatever")["state"] == "serving"
        assert worker.events == []


def test_on_loopback_all_routes_are_there(open_worker: OpenWorker) -> None:
    """Who can reach 127.0.0.1 is on this machine already."""
    with open_worker() as worker:
        assert worker.facade.supported_controls() == ROUTES


def test_beyond_loopback_without_a_token_only_status_is_there(open_worker: OpenWorker) -> None:
    """The others are not registered, and would refuse if they were called all the same."""
    with open_worker(is_loopback=False) as worker:
        worker.open()
        assert worker.facade.supported_controls() == {"status"}
        assert worker.control("status")["state"] == "serving"
        for name in ROUTES - {"status"}:
            with pytest.raises(InvalidArgument):
                worker.control(name)
        assert worker.events == []


@pytest.mark.parametrize("is_loopback", [True, False])
@pytest.mark.parametrize("given", [None, "", "wrong", TOKEN + " ", TOKEN[:-1], 5, [TOKEN], "ä"])
def test_with_a_token_only_its_owner_changes_anything(
    open_worker: OpenWorker, is_loopback: bool, given: object
) -> None:
    """Nothing happens, and neither token is in the answer."""
    with open_worker(is_loopback=is_loopback, control_token=TOKEN) as worker:
        worker.open()
        assert worker.facade.supported_controls() == ROUTES
        body = {} if given is None else {"token": given}
        for name in ROUTES - {"status"}:
            with pytest.raises(InvalidArgument) as refusal:
                worker.control(name, **body)
            assert TOKEN not in str(refusal.value)
        # The framework has taken it out for one of them.
        assert set(worker.events) <= {"register"}


@pytest.mark.parametrize("is_loopback", [True, False])
def test_with_the_token_everything_works(open_worker: OpenWorker, is_loopback: bool) -> None:
    """Drain, resume and trace obey; status needs none."""
    recorder = build_recorder(
        RecorderSettings(engine="synthetic", framework_version="0", version="0", environ={})
    )
    with open_worker(is_loopback=is_loopback, control_token=TOKEN, recorder=recorder) as worker:
        worker.open()
        assert worker.control("drain", token=TOKEN)["state"] == "drained"
        assert worker.control("resume", token=TOKEN)["state"] == "serving"
        assert worker.control("trace", token=TOKEN)["stories"] == []
        assert worker.control("status")["state"] == "serving"
