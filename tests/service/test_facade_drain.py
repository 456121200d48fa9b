"""``cleanup()`` under load: what can finish finishes, what can move is moved, nobody is left behind."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from dynamo.llm.exceptions import EngineShutdown, Unknown

from protocols.bounds import Bound
from protocols.steps import Delta, EngineId, FinishReason
from protocols.telemetry import WorkerState
from service.options.budgets import READ_S
from service.readers import ABORTED_READER_S
from tests.doubles.callers import wire_request
from tests.doubles.engines import DiesAtStep, IgnoresAbort, NeverFirstToken, ScriptedEngine
from tests.service.worker import PATIENT, budgets, synthetic

if TYPE_CHECKING:
    from concurrent.futures import Future

    from tests.doubles.bridge import BridgeCall
    from tests.service.conftest import OpenWorker
    from tests.service.worker import FacadeWorker

FIRST = 1000
FOREVER = 1900


def ask_many(worker: FacadeWorker, count: int, **options: int) -> list[BridgeCall]:
    """Requests that are all admitted, the first perhaps complete already."""
    calls = [worker.ask(wire_request(**options)) for _ in range(count)]
    ledger = worker.graph.ledger
    worker.until(lambda: ledger.admitted + sum(ledger.outcomes.values()) == count)
    return calls


def read_in_turns(calls: list[BridgeCall]) -> None:
    """Every generator is stepped to its end, as the framework's many tasks do."""
    while open_calls := [call for call in calls if not call.is_exhausted and call.error is None]:
        for call in open_calls:
            call.step()


def shut_down(worker: FacadeWorker) -> Future[None]:
    """The signal and, the grace being nothing, the cleanup."""
    worker.send_signal()
    return worker.begin_cleanup()


@pytest.mark.parametrize("requests", [32, 256])
def test_all_that_is_in_flight_finishes_within_the_budget(open_worker: OpenWorker, requests: int) -> None:
    """A signal in mid-answer: every request ends by length with all its tokens, then the engine stops."""
    with open_worker(synthetic(1.0)) as worker:
        worker.open()
        calls = ask_many(worker, requests, max_tokens=60)
        cleanup = shut_down(worker)
        read_in_turns(calls)
        cleanup.result(10)
        for call in calls:
            assert call.finish_reasons == ["length"]
            assert call.tokens == list(range(FIRST, FIRST + 60))
        assert worker.outcomes == {"completed": requests}


def test_those_that_wait_for_a_slot_finish_too(open_worker: OpenWorker) -> None:
    """Two slots, forty requests: a drain serves the queue to its end."""
    with open_worker(synthetic(0.5, max_num_seqs=2)) as worker:
        worker.open()
        calls = ask_many(worker, 40, max_tokens=5)
        cleanup = shut_down(worker)
        read_in_turns(calls)
        cleanup.result(10)
        assert worker.outcomes == {"completed": 40}


def test_a_request_after_the_signal_is_sent_elsewhere(open_worker: OpenWorker) -> None:
    """The door is shut: EngineShutdown, which a frontend turns into another worker."""
    with open_worker(synthetic(1.0)) as worker:
        worker.open()
        (early,) = ask_many(worker, 1, max_tokens=100)
        cleanup = shut_down(worker)
        worker.until(lambda: worker.graph.drain.state is WorkerState.DRAINING)
        late = worker.generate(wire_request(max_tokens=1)).read_to_end()
        assert isinstance(late.error, EngineShutdown)
        early.read_to_end()
        cleanup.result(10)
        assert early.finish_reasons == ["length"]


def test_the_movable_go_first_and_the_others_run_to_the_end(open_worker: OpenWorker) -> None:
    """Past 70 % a request with one choice is handed back; one with two is interrupted at the end."""
    with open_worker(synthetic(5.0), drain=budgets(drain_s=1.0, return_by_s=4.0)) as worker:
        worker.open()
        movable = worker.ask(wire_request(max_tokens=FOREVER))
        fixed = worker.ask(wire_request(max_tokens=FOREVER, n=2))
        worker.until(lambda: worker.graph.ledger.admitted == 2)
        began_s = time.monotonic()
        cleanup = shut_down(worker)
        read_in_turns([movable, fixed])
        cleanup.result(10)
        assert isinstance(movable.error, EngineShutdown)
        assert isinstance(fixed.error, EngineShutdown)
        assert worker.outcomes == {"interrupted": 2}
        moved, ended = worker.stories
        assert (moved.n, ended.n) == (1, 2)
        # Never before their times; how long after is the machine's affair.
        assert moved.ended_s - began_s >= 0.7
        assert ended.ended_s - began_s >= 1.0
        assert moved.completion_tokens == len(movable.tokens)
        assert ended.completion_tokens == len(fixed.tokens)


def test_one_that_ends_late_is_not_interrupted(open_worker: OpenWorker) -> None:
    """Between the move and the end a request that cannot be moved may still finish, and does."""
    engine = ScriptedEngine()
    with open_worker(engine, drain=replace(PATIENT, move_at_s=0.1)) as worker:
        worker.open()
        movable = worker.ask(wire_request())
        fixed = worker.ask(wire_request(n=2))
        worker.until(lambda: len(engine.live) == 2)
        cleanup = shut_down(worker)
        movable.read_to_end()
        ends = [Delta(EngineId(2), [9], index, FinishReason.STOP, is_last=index == 1) for index in (0, 1)]
        worker.loop.call(lambda: engine.emit(*ends))
        fixed.read_to_end()
        cleanup.result(10)
        assert isinstance(movable.error, EngineShutdown)
        assert fixed.tokens == [9, 9]
        assert worker.outcomes == {"interrupted": 1, "completed": 1}


def test_a_second_signal_ends_the_wait(open_worker: OpenWorker) -> None:
    """The operator asked twice: everybody gets EngineShutdown now, and cleanup returns."""
    with open_worker(synthetic(5.0)) as worker:
        worker.open()
        calls = [*ask_many(worker, 8, max_tokens=FOREVER), worker.ask(wire_request(max_tokens=FOREVER, n=2))]
        cleanup = shut_down(worker)
        worker.until(lambda: worker.graph.drain.state is WorkerState.DRAINING)
        worker.send_signal()
        read_in_turns(calls)
        cleanup.result(5)
        assert all(isinstance(call.error, EngineShutdown) for call in calls)
        assert worker.outcomes == {"interrupted": 9}
        assert worker.signals.is_forced


def test_two_signals_before_the_cleanup_leave_nothing_to_wait_for(open_worker: OpenWorker) -> None:
    """Both come during the framework's grace: the requests end then, not when the grace is over."""
    with open_worker(synthetic(5.0)) as worker:
        worker.open()
        (call,) = ask_many(worker, 1, max_tokens=FOREVER)
        worker.send_signal()
        worker.send_signal()
        call.read_to_end()
        assert isinstance(call.error, EngineShutdown)
        worker.cleanup()


def test_one_signal_during_the_grace_changes_nothing_yet(open_worker: OpenWorker) -> None:
    """The framework sleeps through its grace before it cleans up: the worker serves on."""
    with open_worker(synthetic(1.0)) as worker:
        worker.open()
        worker.send_signal()
        call = worker.generate(wire_request(max_tokens=3)).read_to_end()
        assert call.finish_reasons == ["length"]


def test_cleanup_does_not_return_while_somebody_reads(open_worker: OpenWorker) -> None:
    """Returning under a live generator makes the framework abort the process: all its words come first."""
    with open_worker(synthetic(0.0)) as worker:
        worker.open()
        call = worker.ask(wire_request(max_tokens=100))
        worker.until(lambda: worker.outcomes == {"completed": 1})
        cleanup = shut_down(worker)
        worker.until(lambda: worker.graph.drain.state is WorkerState.DRAINED)
        while call.step() is not None:
            if not call.finish_reasons:
                assert not cleanup.done()
        cleanup.result(10)
        assert call.tokens == list(range(FIRST, FIRST + 100))


def test_cleanup_waits_for_one_who_is_slow_to_take_the_error(open_worker: OpenWorker) -> None:
    """An interrupted request's exception is owed as much as a token."""
    with open_worker(NeverFirstToken(), drain=budgets(drain_s=0.1, return_by_s=10.0)) as worker:
        worker.open()
        call = worker.ask(wire_request(max_tokens=3))
        worker.until(lambda: worker.graph.ledger.admitted == 1)
        cleanup = shut_down(worker)
        worker.until(lambda: worker.outcomes == {"interrupted": 1})
        call.read_to_end()
        cleanup.result(10)
        assert isinstance(call.error, EngineShutdown)


def test_a_dropped_generator_does_not_hold_cleanup(open_worker: OpenWorker) -> None:
    """Its client has gone and it never tells us: one second, not the whole budget."""
    with open_worker(synthetic(1.0)) as worker:
        worker.open()
        call = worker.generate(wire_request(max_tokens=FOREVER))
        call.step()
        worker.leave(call.client)
        worker.until(lambda: worker.outcomes == {"cancelled": 1})
        assert worker.facade.open_readers == 1
        began_s = time.monotonic()
        shut_down(worker).result(10)
        assert time.monotonic() - began_s >= ABORTED_READER_S
        call.drop()


def test_a_client_that_goes_after_its_end_does_not_hold_cleanup(open_worker: OpenWorker) -> None:
    """The request was complete but for its reading when the client left: the outcome is no sign of that."""
    with open_worker(synthetic(0.0)) as worker:
        worker.open()
        call = worker.generate(wire_request(max_tokens=100))
        call.step()
        worker.until(lambda: worker.outcomes == {"completed": 1})
        worker.leave(call.client)
        shut_down(worker).result(5)
        call.drop()


def test_an_answer_that_nobody_reads_holds_neither_memory_nor_drain_nor_cleanup(
    open_worker: OpenWorker,
) -> None:
    """Its reader takes nothing: after the stall time-out nothing is kept for it, also not time."""
    with open_worker(synthetic(0.0), stall_timeout_s=0.3) as worker:
        worker.open()
        call = worker.ask(wire_request(max_tokens=100))
        worker.until(lambda: worker.outcomes == {"completed": 1})
        call.finish_step()
        worker.until(lambda: worker.facade.open_readers == 0)
        assert worker.graph.ledger.reserved_tokens == 0
        assert worker.control("drain", timeout_s=1.0)["safe_to_delete"]
        shut_down(worker).result(10)
        assert worker.outcomes == {"completed": 1}
        assert worker.recorder.bounds[Bound.UNREAD_ANSWERS] == 1
        assert worker.recorder.bounds[Bound.READERS] == 0
        call.read_to_end()
        assert isinstance(call.error, Unknown)
        assert call.finish_reasons == []


def test_a_slow_reader_of_a_dead_engine_has_a_moment_and_not_the_budget(open_worker: OpenWorker) -> None:
    """Its last word is an error; the worker says that it waits for it, and leaves it behind."""
    engine = DiesAtStep(2)
    with open_worker(engine) as worker:
        worker.open()
        call = worker.ask(wire_request(max_tokens=50))
        worker.until(lambda: worker.facade.death.is_dead and worker.graph.ledger.is_empty)
        cleanup = worker.begin_cleanup()
        cleanup.result(READ_S + 8.0)
        assert worker.recorder.awaited == [1]
        assert worker.recorder.bounds[Bound.READERS] == 1
        call.read_to_end()
        assert isinstance(call.error, EngineShutdown)


def test_an_engine_that_ignores_aborts_does_not_hold_cleanup(open_worker: OpenWorker) -> None:
    """Interrupted requests are answered by us; what the engine confirms is its own affair."""
    with open_worker(IgnoresAbort(), drain=budgets(drain_s=0.1, return_by_s=3.0)) as worker:
        worker.open()
        calls = [worker.ask(wire_request(max_tokens=FOREVER)) for _ in range(4)]
        worker.until(lambda: worker.graph.ledger.admitted == 4)
        cleanup = shut_down(worker)
        read_in_turns(calls)
        cleanup.result(10)
        assert worker.outcomes == {"interrupted": 4}


def test_the_budget_counts_from_the_signal(open_worker: OpenWorker) -> None:
    """What the framework's grace took is not given again: a late cleanup finds the time spent."""
    with open_worker(synthetic(5.0), drain=budgets(drain_s=0.3, return_by_s=3.0)) as worker:
        worker.open()
        (call,) = ask_many(worker, 1, max_tokens=FOREVER)
        worker.send_signal()
        worker.signals.first_s = time.monotonic() - 10.0
        cleanup = worker.begin_cleanup()
        call.read_to_end()
        cleanup.result(5)
        assert isinstance(call.error, EngineShutdown)


def test_without_a_signal_the_grace_is_not_given_again(open_worker: OpenWorker) -> None:
    """A control route waits for no grace, and a cleanup without a signal we saw comes after it."""
    with open_worker(
        synthetic(5.0), drain=replace(PATIENT, grace_s=1000.0, move_at_s=1000.1, drain_until_s=1000.2)
    ) as worker:
        worker.open()
        (call,) = ask_many(worker, 1, max_tokens=FOREVER)
        cleanup = worker.begin_cleanup()
        call.read_to_end()
        cleanup.result(5)
        assert isinstance(call.error, EngineShutdown)
