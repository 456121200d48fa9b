"""The control routes ``drain`` and ``resume``: who finishes, who is told, and whose wish holds."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from dynamo.llm.exceptions import EngineShutdown, InvalidArgument

from protocols.telemetry import WorkerState
from tests.doubles.bridge import PATIENCE_S
from tests.doubles.callers import wire_request
from tests.doubles.endpoints import HangingEndpoint, RefusingEndpoint, SlowEndpoint
from tests.doubles.engines import ScriptedEngine, SlowStart
from tests.service.worker import synthetic

if TYPE_CHECKING:
    from tests.service.conftest import OpenWorker

FIGURES = ("live_at_start", "completed", "ended_otherwise", "moved", "interrupted")
FOREVER = 1900


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
