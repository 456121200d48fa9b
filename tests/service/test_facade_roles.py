"""A facade whose worker does a part of a request, and hands over or takes over a KV cache."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from dynamo.llm.exceptions import EngineShutdown

from protocols.engine import EngineCapabilities
from protocols.spec import Stage
from protocols.steps import Delta, EngineId, FinishReason
from protocols.telemetry import WorkerState
from tests.doubles.callers import wire_request
from tests.doubles.contexts import FakeClient, FakeContext, RealClient
from tests.doubles.engines import ScriptedEngine, engine_info
from tests.doubles.preparers import HeldPreparer
from tests.service.worker import budgets

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from tests.service.conftest import OpenWorker
    from tests.service.worker import FacadeWorker

HANDOFF = {"opaque_state": "AAEC", "disagg_request_id": 7}


class DecodeClient(FakeClient):
    """Its framework tells of a cancel before the first token only when it was asked to."""

    def __init__(self) -> None:
        super().__init__()
        self.notified = 0

    def context(self) -> NotedContext:
        return NotedContext(self)


class NotedContext(FakeContext):
    """The framework's context of a decode worker."""

    def __init__(self, client: DecodeClient) -> None:
        super().__init__(client)
        self._decode_client = client

    def notify_first_token(self) -> None:
        self._decode_client.notified += 1


class TakesHandoffs(HeldPreparer):
    """Every hand-off can be read at once."""

    def find(self, spec: Any) -> Any:
        return spec


def engine_for(role: Stage) -> ScriptedEngine:
    """An engine that says what the test says."""
    engine = ScriptedEngine(capabilities=EngineCapabilities(can_pause=True, max_n=8, role=role))
    engine.preparer = TakesHandoffs()
    return engine


def shut_down(worker: FacadeWorker) -> Future[None]:
    """The signal and, the grace being nothing, the cleanup."""
    worker.send_signal()
    return worker.begin_cleanup()


def decode_request(**options: Any) -> dict[str, Any]:
    """As the frontend's prefill router sends it."""
    details = {"cached_tokens": 2}
    result = {"disaggregated_params": HANDOFF, "prompt_tokens_details": details}
    return wire_request(**options) | {"prefill_result": result}


@pytest.mark.parametrize("make_client", [DecodeClient, RealClient])
def test_a_decode_worker_hears_of_a_cancel_before_its_first_token(
    open_worker: OpenWorker, make_client: Callable[[], Any]
) -> None:
    """The framework keeps it back until then, unless it is told at the entry that the token is there."""
    engine = engine_for(Stage.DECODE)
    with open_worker(engine, role=Stage.DECODE) as worker:
        worker.open()
        client = make_client()
        call = worker.ask(decode_request(), client)
        worker.until(lambda: bool(engine.live))
        worker.leave(client)
        worker.until(lambda: worker.outcomes == {"cancelled": 1})
        assert engine.ids_of("abort") == [EngineId(1)]
        assert getattr(client, "notified", 1) == 1
        call.drop()


@pytest.mark.parametrize("role", [Stage.WHOLE, Stage.PREFILL])
def test_no_other_worker_claims_a_first_token(open_worker: OpenWorker, role: Stage) -> None:
    """Where nothing is kept back there is nothing to release."""
    engine = engine_for(role)
    with open_worker(engine, role=role) as worker:
        worker.open()
        client = DecodeClient()
        call = worker.ask(wire_request(), client)
        worker.until(lambda: bool(engine.live))
        worker.finish(1, FinishReason.LENGTH, [5])
        call.read_to_end()
        assert client.notified == 0


def test_a_decode_worker_tells_how_much_its_prefill_worker_found(open_worker: OpenWorker) -> None:
    """The number of the worker that computed the prompt wins over the one that fetched it."""
    engine = engine_for(Stage.DECODE)
    with open_worker(engine, role=Stage.DECODE) as worker:
        worker.open()
        call = worker.ask(decode_request(), DecodeClient())
        worker.until(lambda: bool(engine.live))
        first = Delta(EngineId(1), [5], finish_reason=FinishReason.LENGTH, is_last=True, cached_tokens=4)
        worker.loop.call(lambda: engine.emit(first))
        call.read_to_end()
        assert engine.submitted[EngineId(1)].handoff == HANDOFF
        assert call.chunks[-1]["completion_usage"]["prompt_tokens_details"] == {"cached_tokens": 2}


def test_a_prefill_workers_last_word_has_the_hand_off(open_worker: OpenWorker) -> None:
    """With its one token and a reason that lets the frontend go on."""
    engine = engine_for(Stage.PREFILL)
    with open_worker(engine, role=Stage.PREFILL) as worker:
        worker.open()
        call = worker.ask(wire_request(max_tokens=1))
        worker.until(lambda: bool(engine.live))
        last = Delta(EngineId(1), [5], finish_reason=FinishReason.LENGTH, is_last=True, handoff=HANDOFF)
        worker.loop.call(lambda: engine.emit(last))
        call.read_to_end()
        assert call.finish_reasons == ["length"]
        assert call.chunks[-1]["disaggregated_params"] == HANDOFF


@pytest.mark.parametrize("role", Stage)
def test_every_role_has_a_health_check_that_needs_no_other_worker(
    open_worker: OpenWorker, role: Stage
) -> None:
    """The engine gets it whole, without a hand-off."""
    engine = engine_for(role)
    with open_worker(engine, role=role) as worker:
        worker.open()
        payload = worker.loop.run(worker.facade.health_check_payload())
        assert payload is not None
        call = worker.ask(payload, DecodeClient())
        worker.until(lambda: bool(engine.live))
        (spec,) = engine.live.values()
        worker.finish(1, FinishReason.LENGTH, [5])
        call.read_to_end()
        assert spec.stage is Stage.WHOLE
        assert call.finish_reasons == ["length"]


def test_a_worker_is_quiescent_when_nothing_is_left_and_nothing_is_pending(open_worker: OpenWorker) -> None:
    """Not before it has started, not with a live request, not while its KV cache may be read."""
    engine = engine_for(Stage.PREFILL)
    with open_worker(engine, role=Stage.PREFILL) as worker:
        assert worker.loop.run(worker.facade.is_quiescent()) is None
        worker.open()
        assert worker.loop.run(worker.facade.is_quiescent()) is True

        call = worker.ask(wire_request(max_tokens=1))
        worker.until(lambda: bool(engine.live))
        assert worker.loop.run(worker.facade.is_quiescent()) is False

        engine.pending_transfers = 1
        worker.finish(1, FinishReason.LENGTH, [5])
        call.read_to_end()
        worker.settle_engine()
        assert worker.loop.run(worker.facade.is_quiescent()) is False
        assert worker.facade.pending_transfers == 1

        engine.pending_transfers = 0
        assert worker.loop.run(worker.facade.is_quiescent()) is True


def test_cleanup_keeps_the_engine_until_the_last_transfer_is_over(open_worker: OpenWorker) -> None:
    """All requests have ended, and another worker is still reading."""
    engine = engine_for(Stage.PREFILL)
    with open_worker(engine, role=Stage.PREFILL) as worker:
        worker.open()
        engine.pending_transfers = 1
        cleanup = shut_down(worker)
        worker.until(lambda: worker.graph.drain.state is WorkerState.DRAINED)
        assert not cleanup.done()
        assert engine.stops == 0
        engine.pending_transfers = 0
        cleanup.result(10)
        assert engine.stops == 1


def test_a_transfer_that_does_not_end_costs_the_budget_of_the_drain(open_worker: OpenWorker) -> None:
    """Then the engine stops all the same, in time."""
    engine = engine_for(Stage.PREFILL)
    with open_worker(engine, role=Stage.PREFILL, drain=budgets(drain_s=0.3, return_by_s=4.0)) as worker:
        worker.open()
        engine.pending_transfers = 1
        began_s = time.monotonic()
        shut_down(worker).result(10)
        assert time.monotonic() - began_s >= 0.3
        assert engine.stops == 1


def test_a_second_signal_ends_the_wait_for_transfers(open_worker: OpenWorker) -> None:
    """The operator does not want to wait."""
    engine = engine_for(Stage.PREFILL)
    with open_worker(engine, role=Stage.PREFILL) as worker:
        worker.open()
        engine.pending_transfers = 1
        cleanup = shut_down(worker)
        worker.until(lambda: worker.graph.drain.state is WorkerState.DRAINED)
        assert not cleanup.done()
        worker.send_signal()
        cleanup.result(5)


def test_an_engine_that_died_has_nothing_left_to_hand_over(open_worker: OpenWorker) -> None:
    """Its transfers died with it."""
    engine = engine_for(Stage.PREFILL)
    with open_worker(engine, role=Stage.PREFILL) as worker:
        worker.open()
        engine.pending_transfers = 1
        worker.loop.call(engine.die)
        worker.until(lambda: worker.facade.death.is_dead)
        worker.begin_cleanup().result(5)


def test_a_prefill_worker_drains_from_the_first_time_that_it_is_asked(open_worker: OpenWorker) -> None:
    """The framework polls before it cleans up: the door is shut then, and the ladder climbed in its time."""
    engine = engine_for(Stage.PREFILL)
    with open_worker(engine, role=Stage.PREFILL, drain=budgets(drain_s=0.5, return_by_s=4.0)) as worker:
        worker.open()
        movable = worker.ask(wire_request(max_tokens=1))
        worker.until(lambda: bool(engine.live))
        worker.loop.run(worker.facade.is_quiescent())
        states = [worker.graph.drain.state]

        worker.send_signal()
        assert worker.loop.run(worker.facade.is_quiescent()) is False
        states.append(worker.graph.drain.state)
        assert states == [WorkerState.SERVING, WorkerState.DRAINING]
        late = worker.generate(wire_request(max_tokens=1)).read_to_end()
        movable.read_to_end()
        assert isinstance(late.error, EngineShutdown)
        assert isinstance(movable.error, EngineShutdown)
        worker.settle_engine()
        assert worker.loop.run(worker.facade.is_quiescent()) is True


def test_a_decode_worker_tells_no_router_what_lies_in_its_cache(open_worker: OpenWorker) -> None:
    """Its load is told, its blocks are not: what it holds was computed elsewhere."""
    info = msgspec.structs.replace(engine_info(), block_tokens=16, total_blocks=8)
    for role, sources in ((Stage.DECODE, 0), (Stage.PREFILL, 1)):
        engine = ScriptedEngine(info=info, capabilities=EngineCapabilities(role=role))
        with open_worker(engine, role=role, publishes_kv_events=True) as worker:
            worker.open()
            assert len(worker.loop.run(worker.facade.kv_event_sources())) == sources
            assert worker.facade.component_metrics_dp_ranks() == [0]
