"""The control routes of a running worker: what they say, whom they obey, what they refuse."""

from __future__ import annotations

import asyncio
import json
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from dynamo.llm.exceptions import EngineShutdown, HttpError, InvalidArgument

from protocols.bounds import Bound
from protocols.telemetry import Outcome, WorkerState
from service.controls import Controls
from service.telemetry.recorder import RecorderSettings, build_recorder
from tests.doubles.bridge import PATIENCE_S
from tests.doubles.callers import wire_request
from tests.doubles.endpoints import HangingEndpoint, RefusingEndpoint, SlowEndpoint
from tests.doubles.engines import ScriptedEngine, SlowStart
from tests.service.worker import synthetic

if TYPE_CHECKING:
    from tests.service.conftest import OpenWorker

IMPOSSIBLE = {"update_weights", "profile", "reset_cache"}
SLEEPING = {"sleep", "wake", "release_memory_occupation", "resume_memory_occupation"}
ROUTES = {"drain", "resume", "status", "trace", "log_level"} | SLEEPING | IMPOSSIBLE
FIGURES = ("live_at_start", "completed", "ended_otherwise", "moved", "interrupted")
FOREVER = 1900
TOKEN = "a long secret"


def test_status_before_the_start(open_worker: OpenWorker) -> None:
    """Starting, nobody live, and certainly not safe to delete."""
    with open_worker() as worker:
        status = worker.control("status")
        assert status.pop("tasks") >= 1
        assert status.pop("rss_bytes") > 0
        assert status == {"state": "starting", "live": 0, "in_flight": 0, "safe_to_delete": False}


def test_status_counts_what_is_there(open_worker: OpenWorker) -> None:
    """Live, waiting, in the engine, being read, and how the others ended."""
    engine = ScriptedEngine(max_num_seqs=1)
    with open_worker(engine) as worker:
        worker.open()
        done = worker.ask(wire_request())
        worker.until(lambda: engine.live)
        worker.finish(1)
        done.read_to_end()
        worker.ask(wire_request())
        worker.ask(wire_request())
        worker.until(lambda: worker.graph.executor.waiting_requests == 1)
        worker.until(lambda: worker.facade.open_readers == 2)
        status = worker.control("status")
        assert status.pop("outcomes") == {
            outcome.value: int(outcome is Outcome.COMPLETED) for outcome in Outcome
        }
        assert status.pop("tasks") >= len(worker.graph.actors)
        assert status.pop("rss_bytes") > 1 << 20
        assert status == {
            "state": "serving",
            "live": 2,
            "waiting": 1,
            "in_flight": 1,
            "readers": 2,
            "pending_transfers": 0,
            "in_discovery": True,
            "safe_to_delete": False,
            "memory": "awake",
            "asleep": [],
            "started": 3,
        }


def test_every_answer_is_json(open_worker: OpenWorker) -> None:
    """The framework sends what comes back as JSON."""
    with open_worker() as worker:
        worker.open()
        for name in ("status", "drain", "resume"):
            assert json.loads(json.dumps(worker.control(name), allow_nan=False))["live"] == 0


class FakeWorker:
    """As much of a worker as the verdict looks at."""

    def __init__(
        self, state: WorkerState, readers: int, *, is_idle: bool, is_dead: bool, is_listed: bool
    ) -> None:
        self.open_readers = readers
        self.graph = self.drain = self.executor = self.ledger = self.death = self.discovery = self
        self.engine, self.maintenance = self, None
        self.state = state
        self.is_idle = is_idle
        self.is_dead = is_dead
        self.is_listed = is_listed
        self.is_stopping = False
        self.pending_transfers = 0
        self.live_count = self.waiting_requests = self.running_sequences = self.started = 0
        self.outcomes: dict[Outcome, int] = {}


@pytest.mark.parametrize(
    ("state", "readers", "is_idle", "is_dead", "is_listed"),
    list(
        product(
            [WorkerState.SERVING, WorkerState.DRAINING, WorkerState.DRAINED],
            [0, 1],
            [True, False],
            [True, False],
            [True, False],
        )
    ),
)
def test_safe_to_delete_is_drained_and_read_and_idle_and_alive_and_unlisted(
    state: WorkerState, readers: int, is_idle: bool, is_dead: bool, is_listed: bool
) -> None:
    """All five or not at all."""
    worker: Any = FakeWorker(state, readers, is_idle=is_idle, is_dead=is_dead, is_listed=is_listed)

    async def ask() -> dict[str, Any]:
        return Controls(worker, worker).status()

    verdict = asyncio.run(ask())["safe_to_delete"]
    is_rid = state is WorkerState.DRAINED and readers == 0 and is_idle
    assert verdict is (is_rid and not is_dead and not is_listed)


def test_an_answer_that_is_not_read_yet_is_not_safe(
    open_worker: OpenWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drained, the engine idle, and one client still reading: the drain's answer and the status say no."""
    monkeypatch.setattr("service.control_drain._SETTLE_S", 0.1)
    with open_worker() as worker:
        worker.open()
        call = worker.ask(wire_request(max_tokens=3))
        worker.until(lambda: worker.graph.ledger.is_empty)
        answer = worker.control("drain")
        assert (answer["state"], answer["readers"], answer["safe_to_delete"]) == ("drained", 1, False)
        assert worker.recorder.bounds == {Bound.READERS: 1}
        assert call.read_to_end().finish_reasons == ["length"]
        worker.until(lambda: worker.facade.open_readers == 0)
        assert worker.control("status")["safe_to_delete"] is True


def test_an_engine_that_still_holds_aborted_sequences_is_not_safe(open_worker: OpenWorker) -> None:
    """Nobody is live and nobody reads, but memory and slot are not confirmed free."""
    engine = ScriptedEngine(is_confirming=False)
    with open_worker(engine) as worker:
        worker.open()
        call = worker.ask(wire_request())
        worker.until(lambda: engine.live)
        answer = worker.control("drain", timeout_s=0)
        assert isinstance(call.read_to_end().error, EngineShutdown)
        worker.until(lambda: worker.facade.open_readers == 0)
        assert (answer["state"], answer["in_flight"]) == ("drained", 1)
        assert worker.control("status")["safe_to_delete"] is False
        worker.finish(1)
        worker.until(lambda: worker.graph.executor.is_idle)
        assert worker.control("status")["safe_to_delete"] is True


def test_a_resumed_worker_is_not_safe_until_it_is_drained_again(open_worker: OpenWorker) -> None:
    """The verdict is about now."""
    with open_worker() as worker:
        worker.open()
        verdicts = [
            worker.control(name)["safe_to_delete"]
            for name in ("status", "drain", "resume", "status", "drain")
        ]
        assert verdicts == [False, True, False, False, True]


def test_a_dying_worker_is_not_safe(open_worker: OpenWorker) -> None:
    """Not even one that was drained: it is on its way out by itself, and says failed."""
    engine = ScriptedEngine()
    with open_worker(engine) as worker:
        worker.open()
        assert worker.control("drain")["safe_to_delete"] is True
        worker.loop.call(engine.die)
        worker.until(lambda: worker.facade.death.is_dead)
        status = worker.control("status")
        assert (status["state"], status["safe_to_delete"]) == ("failed", False)


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


def test_a_cache_that_may_still_be_fetched_is_waited_for(open_worker: OpenWorker) -> None:
    """Nobody is live here, and a decode worker is reading: the drain answers when it has read, or in time."""
    engine = ScriptedEngine()
    with open_worker(engine) as worker:
        worker.open()
        engine.pending_transfers = 1
        in_time = worker.control("drain", timeout_s=0)
        assert (in_time["state"], in_time["pending_transfers"], in_time["safe_to_delete"]) == (
            "drained",
            1,
            False,
        )
        draining = worker.loop.begin(worker.facade.engine_control("drain", {"timeout_s": 60}))
        worker.until(lambda: worker.graph.drain.state is WorkerState.DRAINED)
        assert not draining.done()
        engine.pending_transfers = 0
        assert draining.result(10)["safe_to_delete"] is True


def test_a_drain_lets_everybody_finish(open_worker: OpenWorker) -> None:
    """The door is shut and discovery left; the answer comes when all is read, and says so."""
    with open_worker(synthetic(1.0)) as worker:
        worker.open()
        calls = [worker.ask(wire_request(max_tokens=50)) for _ in range(4)]
        worker.until(lambda: worker.graph.ledger.admitted == 4)
        draining = worker.loop.begin(worker.facade.engine_control("drain", {}))
        worker.until(lambda: worker.graph.drain.state is WorkerState.DRAINING)
        worker.until(lambda: worker.events == ["unregister"])
        assert worker.control("status")["safe_to_delete"] is False
        for call in calls:
            assert call.read_to_end().finish_reasons == ["length"]
        answer = draining.result(10)
        assert answer["state"] == "drained"
        assert answer["safe_to_delete"] is True
        assert answer["in_discovery"] is False
        assert answer["seconds"] >= 0
        assert [answer[name] for name in FIGURES] == [4, 4, 0, 0, 0]


def test_a_drained_worker_sends_requests_elsewhere_until_it_is_resumed(open_worker: OpenWorker) -> None:
    """Shut, open again, and back in discovery."""
    with open_worker() as worker:
        worker.open()
        worker.control("drain")
        refused = worker.generate(wire_request()).read_to_end()
        assert isinstance(refused.error, EngineShutdown)
        assert worker.control("resume")["state"] == "serving"
        assert worker.events == ["unregister", "register"]
        served = worker.generate(wire_request(max_tokens=1)).read_to_end()
        assert served.finish_reasons == ["length"]
        assert worker.control("status")["safe_to_delete"] is False


def test_a_drain_with_a_budget_of_its_own_ends_by_it(open_worker: OpenWorker) -> None:
    """`timeout_s` is the operator's patience: what is live then is interrupted, and counted.

    The answer waits for the engine, which lets go at its next step.
    """
    with open_worker(synthetic(100.0)) as worker:
        worker.open()
        calls = [
            worker.ask(wire_request(max_tokens=FOREVER)),
            worker.ask(wire_request(max_tokens=FOREVER, n=2)),
        ]
        worker.until(lambda: worker.graph.ledger.admitted == 2)
        draining = worker.loop.begin(worker.facade.engine_control("drain", {"timeout_s": 0.2}))
        for call in calls:
            assert isinstance(call.read_to_end().error, EngineShutdown)
        answer = draining.result(10)
        assert [answer[name] for name in FIGURES] == [2, 0, 0, 1, 2]
        assert answer["outcomes"]["interrupted"] == 2
        assert answer["safe_to_delete"] is True


def test_several_who_drain_get_the_same_drain(open_worker: OpenWorker) -> None:
    """Two operators and the cleanup ask at once: everybody's answer comes, the sooner budget holds."""
    with open_worker(synthetic(5.0)) as worker:
        worker.open()
        call = worker.ask(wire_request(max_tokens=FOREVER))
        worker.until(lambda: worker.graph.ledger.admitted == 1)
        first = worker.loop.begin(worker.facade.engine_control("drain", {"timeout_s": 3600}))
        worker.until(lambda: worker.graph.drain.state is WorkerState.DRAINING)
        second = worker.loop.begin(worker.facade.engine_control("drain", {"timeout_s": 0}))
        call.read_to_end()
        assert first.result(10)["interrupted"] == second.result(10)["interrupted"] == 1


@pytest.mark.parametrize("timeout_s", [-1, 86_401, float("nan"), float("inf"), "5", True, [], 10**400])
def test_a_budget_that_is_no_time_is_refused_before_anything_happens(
    open_worker: OpenWorker, timeout_s: object
) -> None:
    """The worker stays in discovery and serves on."""
    with open_worker() as worker:
        worker.open()
        with pytest.raises(InvalidArgument, match="timeout_s"):
            worker.control("drain", timeout_s=timeout_s)
        assert worker.events == []
        assert worker.control("status")["state"] == "serving"


def test_resume_while_draining_is_refused(open_worker: OpenWorker) -> None:
    """A drain that is on is not taken back half-way."""
    engine = ScriptedEngine()
    with open_worker(engine) as worker:
        worker.open()
        call = worker.ask(wire_request())
        worker.until(lambda: engine.live)
        draining = worker.loop.begin(worker.facade.engine_control("drain", {}))
        worker.until(lambda: worker.graph.drain.state is WorkerState.DRAINING)
        with pytest.raises(InvalidArgument, match="while draining"):
            worker.control("resume")
        worker.finish(1)
        call.read_to_end()
        draining.result(10)


def test_a_resume_while_a_drain_leaves_discovery_is_refused(open_worker: OpenWorker) -> None:
    """Nobody is live and the store takes its time: in the end the worker is drained, unlisted and safe."""
    with open_worker() as worker:
        worker.start()
        store = SlowEndpoint(worker.events, 0.05)
        worker.loop.run(worker.facade.on_endpoint_ready(store))

        async def both() -> list[Any]:
            calls = [asyncio.ensure_future(worker.facade.engine_control("drain", {}))]
            await store.asked.wait()
            calls.append(asyncio.ensure_future(worker.facade.engine_control("resume", {})))
            return list(await asyncio.gather(*calls, return_exceptions=True))

        drained, refusal = worker.loop.run(both())
        assert isinstance(refusal, InvalidArgument)
        assert (drained["state"], drained["in_discovery"], drained["safe_to_delete"]) == (
            "drained",
            False,
            True,
        )
        assert not store.is_listed
        assert worker.control("resume")["in_discovery"] is True
        assert store.is_listed


@pytest.mark.parametrize("is_patient", [True, False])
def test_a_drain_while_a_resume_joins_discovery_wins(open_worker: OpenWorker, is_patient: bool) -> None:
    """The later wish holds, even if its caller hangs up, and the resume does not say that it had its way."""
    with open_worker() as worker:
        worker.start()
        store = SlowEndpoint(worker.events, 0.05)
        worker.loop.run(worker.facade.on_endpoint_ready(store))
        worker.control("drain")
        store.asked.clear()

        async def both() -> list[Any]:
            calls = [asyncio.ensure_future(worker.facade.engine_control("resume", {}))]
            await store.asked.wait()
            calls.append(asyncio.ensure_future(worker.facade.engine_control("drain", {})))
            if not is_patient:
                # Nobody tells when that is.
                while worker.graph.drain.state is not WorkerState.DRAINED:  # noqa: ASYNC110
                    await asyncio.sleep(0)
                calls[1].cancel()
            return list(await asyncio.gather(*calls, return_exceptions=True))

        refusal, _ = worker.loop.run(both())
        assert isinstance(refusal, InvalidArgument)
        worker.until(lambda: not worker.facade.discovery.is_listed)
        status = worker.control("status")
        assert (status["state"], status["safe_to_delete"]) == ("drained", True)
        assert not store.is_listed


def test_a_store_that_hangs_uses_up_nobodys_time(
    open_worker: OpenWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The door shuts and the drain ends while the store is still asked; only the answer waits for it."""
    monkeypatch.setattr("service.discovery.STORE_S", PATIENCE_S)
    engine = ScriptedEngine()
    with open_worker(engine) as worker:
        worker.start()
        store = HangingEndpoint(worker.events)
        worker.loop.run(worker.facade.on_endpoint_ready(store))
        call = worker.ask(wire_request())
        worker.until(lambda: engine.live)
        draining = worker.loop.begin(worker.facade.engine_control("drain", {"timeout_s": 60}))
        worker.until(lambda: worker.events == ["unregister"])
        assert worker.graph.drain.state is WorkerState.DRAINING
        worker.finish(1)
        assert call.read_to_end().finish_reasons == ["stop"]
        worker.until(lambda: worker.graph.drain.state is WorkerState.DRAINED)
        assert not draining.done()
        assert worker.control("status")["safe_to_delete"] is False
        worker.loop.call(store.let_return)
        answer = draining.result(PATIENCE_S)
        assert [answer[name] for name in FIGURES] == [1, 1, 0, 0, 0]
        assert answer["safe_to_delete"] is True


@pytest.mark.parametrize("is_drained", [True, False])
def test_resume_after_a_signal_is_refused(open_worker: OpenWorker, is_drained: bool) -> None:
    """A worker on its way out must not open its door or come back into discovery."""
    with open_worker() as worker:
        worker.open()
        if is_drained:
            worker.control("drain")
        worker.send_signal()
        with pytest.raises(InvalidArgument, match="stopping"):
            worker.control("resume")
        assert "register" not in worker.events
        assert worker.control("status")["in_discovery"] is False


def test_resume_of_a_dead_worker_is_refused(open_worker: OpenWorker) -> None:
    """Dead is dead."""
    engine = ScriptedEngine()
    with open_worker(engine) as worker:
        worker.open()
        worker.control("drain")
        worker.loop.call(engine.die)
        worker.until(lambda: worker.facade.death.is_dead)
        with pytest.raises(InvalidArgument):
            worker.control("resume")


def test_resume_before_the_start_is_refused(open_worker: OpenWorker) -> None:
    """There is nothing to open yet."""
    with open_worker(SlowStart(0.0)) as worker, pytest.raises(InvalidArgument):
        worker.control("resume")


def test_resume_of_a_serving_worker_is_nothing_new(open_worker: OpenWorker) -> None:
    """Asking twice, or without a drain, does not hurt."""
    with open_worker() as worker:
        worker.open()
        assert worker.control("resume")["state"] == "serving"


def test_a_drain_goes_on_without_a_store(open_worker: OpenWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Discovery is down, in either way: the worker drains all the same, and says that it is still listed."""
    monkeypatch.setattr("service.discovery.STORE_S", 0.05)
    with open_worker() as worker:
        worker.start()
        worker.loop.run(
            worker.facade.on_endpoint_ready(RefusingEndpoint(worker.events, RuntimeError("no route")))
        )
        refused = worker.control("drain")
        assert (refused["state"], refused["in_discovery"]) == ("drained", True)
        worker.control("resume")
        hanging = HangingEndpoint(worker.events)
        worker.loop.run(worker.facade.on_endpoint_ready(hanging))
        hung = worker.control("drain")
        assert (hung["state"], hung["in_discovery"], hung["safe_to_delete"]) == ("drained", True, False)
        worker.loop.call(hanging.let_return)


@pytest.mark.parametrize("name", ["nonsense", "", "status/", "STATUS"])
def test_an_unknown_route_is_refused_by_name(open_worker: OpenWorker, name: str) -> None:
    """With the names there are."""
    with open_worker() as worker:
        worker.open()
        with pytest.raises(
            InvalidArgument, match=r"one of drain, log_level, profile, .*, update_weights, wake"
        ):
            worker.loop.run(worker.facade.engine_control(name, {}))


@pytest.mark.parametrize("body", [[], None, "drain", 5])
def test_a_body_that_is_no_object_is_refused(open_worker: OpenWorker, body: Any) -> None:
    """The framework passes a JSON list on as it is."""
    with open_worker() as worker:
        worker.open()
        with pytest.raises(InvalidArgument, match="JSON object"):
            worker.loop.run(worker.facade.engine_control("drain", body))


@pytest.mark.parametrize("name", ["drain", "resume", "sleep", "status", "trace", "wake"])
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
        assert worker.events == []


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


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, [3, 2, 1]),
        ({"which": "last", "limit": 2}, [3, 2]),
        ({"which": "failed"}, []),
        ({"id": "2"}, [2]),
        ({"id": "nobody"}, []),
    ],
)
def test_the_trace_route_shows_stories_without_content(
    open_worker: OpenWorker, asked: dict[str, object], expected: list[int]
) -> None:
    """Newest first, as JSON, with no prompt and no token of an answer."""
    recorder = build_recorder(
        RecorderSettings(engine="synthetic", framework_version="0", version="0", environ={})
    )
    with open_worker(recorder=recorder) as worker:
        worker.open()
        for _ in range(3):
            worker.generate(wire_request([31_337], max_tokens=2)).read_to_end()
        told = worker.control("trace", **asked)
        assert told["worker"] == recorder.worker
        stories = told["stories"]
        assert [story["engine_id"] for story in stories] == expected
        text = json.dumps(stories, allow_nan=False)
        assert "31337" not in text
        assert "1001" not in text


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"which": "nobody"}, "which"),
        ({"which": None}, "which"),
        ({"which": []}, "which"),
        ({"which": "last", "id": "1"}, "which"),
        ({"id": 1}, "id"),
        ({"id": {"a": 1}}, "id"),
        ({"limit": 0}, "limit"),
        ({"limit": 65}, "limit"),
        ({"limit": True}, "limit"),
        ({"limit": "2"}, "limit"),
    ],
)
def test_the_trace_route_refuses_by_name_what_it_does_not_know(
    open_worker: OpenWorker, asked: dict[str, object], field: str
) -> None:
    """Nothing that was asked for is left out without a word."""
    with open_worker() as worker:
        worker.open()
        with pytest.raises(InvalidArgument, match=f"^{field}:"):
            worker.control("trace", **asked)
