"""A bug in one actor ends the whole worker, in order; it never goes on without it."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.doubles.hostile_engine import Fault
from tests.faults.load import Kind, Load
from tests.faults.striking import SOUND, check_survived, die, exit_of, mixed, strike

if TYPE_CHECKING:
    from tests.faults.conftest import StackFactory
    from tests.faults.figures import Figures

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

ACTORS = {
    "intake": "actors.intake:RequestIntake.on_submit",
    "resolver": "actors.resolver:SpecResolver.on_admitted",
    "executor, requests": "actors.executor:Executor.on_resolved",
    "executor, control": "actors.executor:Executor.on_control",
    "executor, steps": "actors.executor:Executor.on_step",
    "streamer": "actors.streamer:ChunkStreamer.on_step",
    "monitor": "actors.cancellation:CancellationMonitor.on_control",
    "monitor, sweeper": "actors.cancellation:CancellationMonitor.on_sweep",
}


@pytest.mark.parametrize("actor", ACTORS)
def test_a_crashed_actor_ends_its_worker_and_no_request(
    new_stack: StackFactory, figures: Figures, actor: str
) -> None:
    """Row 20: exit 70; what ran there goes on at the second worker, every token once."""
    stack = new_stack(hostile=({"breaks": ACTORS[actor]}, SOUND))
    hit, _ = stack.workers
    with Load(stack.http_port, stack.model()) as load:
        mixed(load, max_tokens=200)
        load.wait_tokens(10)
        armed_s = strike(load, hit, Fault.ARMS)
        # One message for every actor: a request that comes, and some that leave.
        load.start(Kind.PLAIN, 8, max_tokens=20)
        leaving = load.start(Kind.PLAIN, 8, max_tokens=2000)
        load.wait_tokens(5, leaving)
        load.hang_up(leaving)
        code, ended_s = exit_of(hit, 30)
        answers = [answer for answer in load.finish() if answer not in leaving]
    assert code == 70
    survived = check_survived(answers)
    assert "worker.failed" in hit.log()
    assert "KeyError" in hit.log()
    value = f"after {ended_s - armed_s:.1f} s, {survived.lost}"
    figures.record(row=20, what=f"{actor} raises: exit 70, lost", value=value, goal="0")


def test_a_drain_that_crashes_ends_its_worker_and_no_request(
    new_stack: StackFactory, figures: Figures
) -> None:
    """Row 20: SIGTERM, and the drain raises at once: what ran there goes on elsewhere, code 70."""
    stack = new_stack(hostile=({"breaks": "actors.drain:DrainCoordinator._drain"}, SOUND))
    hit, _ = stack.workers

    def arm_and_drain(load: Load) -> float:
        strike(load, hit, Fault.ARMS)
        hit.send(signal.SIGTERM)
        return time.monotonic()

    death = die(stack, arm_and_drain)
    value = f"after {death.seconds:.1f} s, {death.survived.lost}"
    figures.record(row=20, what="drain raises: exit 70, lost", value=value, goal="0")
