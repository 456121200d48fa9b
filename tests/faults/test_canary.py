"""The canary is on and the worker is full: ``/health`` says 200, whatever the slots are busy with."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
import uvloop

from tests.doubles.bridge import LoopThread
from tests.doubles.callers import wire_request
from tests.doubles.hostile_engine import Fault
from tests.e2e.health_watch import HealthWatch
from tests.e2e.waiting import wait_until
from tests.faults.load import Kind, Load
from tests.faults.striking import strike
from tests.service.worker import FacadeWorker, synthetic

if TYPE_CHECKING:
    from tests.e2e.stacks import Stack, Worker
    from tests.faults.conftest import StackFactory
    from tests.faults.figures import Figures

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SLOTS, PLACES = 4, 16
LONG_S = 12.0
# The canary asks after so long without an answer of the endpoint. Probes are in the log of those who debug.
CANARY = {
    "DYN_HEALTH_CHECK_ENABLED": "true",
    "DYN_CANARY_WAIT_TIME": "1",
    "DYN_LOG": "info,actor.request=debug",
}


def test_ten_times_the_load_is_healthy(new_stack: StackFactory, figures: Figures) -> None:
    """The worker is refusing nine of ten for a long while, and every poll says 200."""
    stack = _new(new_stack)
    worker = stack.workers[0]
    with HealthWatch(worker) as health, Load(stack.http_port, stack.model()) as load:
        until_s = time.monotonic() + LONG_S
        while time.monotonic() < until_s:
            answers = load.start(Kind.UNARY, 10 * PLACES, max_tokens=40)
            load.wait_ended(answers)
            assert {answer.status for answer in answers} == {200, 429}
    assert health.bad == []
    assert worker.status()["outcomes"]["refused"] > PLACES
    figures.record(
        row="S15", what="canary on, 10x load: /health not 200", value=f"0 of {health.polls} polls", goal="0"
    )


@pytest.mark.slow
@pytest.mark.parametrize("step_ms", [20, 2500])
def test_a_worker_whose_slots_are_busy_for_long_is_healthy(
    new_stack: StackFactory, figures: Figures, step_ms: int
) -> None:
    """Every slot has a long answer and more requests wait: canaries are answered, and take nobody's turn.

    At 2.5 s a step the worker is silent for longer than the canary waits, and is asked again and again.
    """
    stack = _new(new_stack, step_ms)
    worker = stack.workers[0]
    before, asked = worker.status()["outcomes"]["completed"], _probes(worker)
    with HealthWatch(worker) as health, Load(stack.http_port, stack.model()) as load:
        answers = load.start(Kind.PLAIN, SLOTS, max_tokens=int(LONG_S * 1000 / step_ms))
        worker.wait_status(lambda state: state["in_flight"] == SLOTS)
        answers += load.start(Kind.PLAIN, PLACES - SLOTS, max_tokens=2)
        load.finish(LONG_S + 120.0)
    assert health.bad == []
    assert [str(answer) for answer in answers if not answer.is_complete] == []
    # Probes are counted nowhere.
    assert worker.status()["outcomes"]["completed"] - before == len(answers)
    value = f"0 of {health.polls} polls, {_probes(worker) - asked} canaries answered"
    what = f"canary on, all slots busy at {step_ms} ms a step: /health not 200"
    figures.record(row="S15", what=what, value=value, goal="0")
    if step_ms > 1000:
        assert _probes(worker) > asked


@pytest.mark.slow
@pytest.mark.parametrize(
    ("users", "engine_queue"), [(1, 0), (SLOTS - 1, 0), (SLOTS - 1, 32), (SLOTS, 32)], ids=str
)
def test_a_worker_with_room_and_long_steps_is_healthy(
    new_stack: StackFactory, figures: Figures, users: int, engine_queue: int
) -> None:
    """A slot is free, or the engine's own queue: a probe that went there would come back after its time."""
    stack = _new(new_stack, 2500, "--engine-queue", str(engine_queue))
    worker = stack.workers[0]
    asked = _probes(worker)
    with HealthWatch(worker) as health, Load(stack.http_port, stack.model()) as load:
        load.start(Kind.PLAIN, users, max_tokens=8)
        answers = load.finish(120.0)
    assert health.bad == []
    assert [str(answer) for answer in answers if not answer.is_complete] == []
    assert _probes(worker) > asked
    figures.record(
        row="S15",
        what=f"canary on, {users} of {SLOTS} slots busy, queue {engine_queue}, 2500 ms a step: not 200",
        value=f"0 of {health.polls} polls, {_probes(worker) - asked} canaries answered",
        goal="0",
    )


@pytest.mark.parametrize("engine_queue", [0, 32])
def test_a_worker_whose_engine_hangs_is_not_healthy(
    new_stack: StackFactory, figures: Figures, engine_queue: int
) -> None:
    """With a slot free and users in the others: ``/health`` is not 200, long before the hang watch bites."""
    options = ("--engine-hang-timeout", "60", "--engine-queue", str(engine_queue))
    stack = _new(new_stack, 20, *options)
    worker = stack.workers[0]
    with Load(stack.http_port, stack.model()) as load:
        load.start(Kind.PLAIN, SLOTS - 2, max_tokens=1000)
        hung_s = strike(load, worker, Fault.HANGS)
        with HealthWatch(worker) as health:
            bad_s = wait_until(lambda: health.bad, worker.log, 60.0)
        assert health.bad[0].startswith("503")
        assert worker.child.exit_code is None
    what = "canary on, the engine hangs with a slot free: /health not 200 after"
    figures.record(
        row="S15", what=what, value=f"{bad_s - hung_s:.1f} s", goal="before the hang time-out, 60 s"
    )


def test_an_idle_worker_answers_its_canaries(new_stack: StackFactory) -> None:
    """The framework does ask, and again; otherwise the two tests above would show nothing."""
    stack = _new(new_stack)
    worker = stack.workers[0]
    asked = _probes(worker)
    with HealthWatch(worker) as health:
        wait_until(lambda: _probes(worker) >= asked + 3, worker.log, every_s=0.1)
    assert health.bad == []


@pytest.mark.parametrize("tokens_read", [0, 1], ids=["nothing was read", "then nothing was read"])
def test_probes_are_answered_while_every_reader_stalls(tokens_read: int) -> None:
    """In process: all slots are held back by their readers; a probe waits for none of them, ten times."""
    with LoopThread(uvloop.new_event_loop) as loop:
        worker = FacadeWorker(loop, synthetic(1.0, SLOTS), max_live=PLACES, outbox_tokens=8).open()
        calls = [worker.ask(wire_request(max_tokens=500)) for _ in range(PLACES)]
        for call in calls[:SLOTS]:
            for _ in range(tokens_read):
                call.step()
        worker.until(lambda: worker.graph.ledger.admitted == PLACES)
        tickets = worker.loop.call(lambda: list(worker.graph.ledger.live()))
        worker.until(lambda: sum(ticket.outbox.is_held for ticket in tickets) == SLOTS)
        for _ in range(10):
            probe = worker.generate(wire_request(max_tokens=1, _HEALTH_CHECK=True)).read_to_end()
            assert probe.finish_reasons == ["length"]
        assert worker.graph.ledger.started == PLACES
        worker.end()
        worker.check_closed()


def _new(new_stack: StackFactory, step_ms: float = 20, *options: str) -> Stack:
    words = ("--max-live", str(PLACES), *options)
    return new_stack(*words, max_num_seqs=SLOTS, step_ms=step_ms, environ=CANARY)


def _probes(worker: Worker) -> int:
    return worker.log().count("request.probe")
