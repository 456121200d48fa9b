"""An engine that makes no step any more: the watchdog ends the worker, another one goes on with its work."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.doubles.hostile_engine import Fault
from tests.e2e.waiting import wait_until
from tests.faults.striking import SOUND, die, engine_process, strike

if TYPE_CHECKING:
    from tests.faults.conftest import StackFactory
    from tests.faults.figures import Figures
    from tests.faults.load import Load

pytestmark = [pytest.mark.e2e, pytest.mark.each_engine, pytest.mark.timeout(300)]

HANG_TIMEOUT_S = 2.0
# Of the stacks: see tests/e2e/stacks.py.
GRACE_S = 0.5


def test_a_hung_engine_ends_its_worker_and_no_request(new_stack: StackFactory, figures: Figures) -> None:
    """Row 4: exit 70 in time; what ran there goes on at the second worker, every token once."""
    stack = new_stack("--engine-hang-timeout", f"{HANG_TIMEOUT_S:g}", hostile=({}, SOUND))
    hit, _ = stack.workers
    death = die(stack, lambda load: strike(load, hit, Fault.HANGS))
    assert "the engine is hung" in hit.log()
    goal = f"{HANG_TIMEOUT_S:g} s + 1 s + {GRACE_S:g} s of grace"
    figures.record(row=4, what="from the hang to exit 70", value=f"{death.seconds:.1f} s", goal=goal)
    figures.record(row=4, what="requests that can move: lost", value=death.survived.lost, goal="0")
    figures.record(
        row=4, what="n=2 and guided: ended with an error", value=death.survived.told, goal="counted"
    )


def test_an_engine_process_that_stands_still_ends_its_worker_and_no_request(
    new_stack: StackFactory, figures: Figures
) -> None:
    """Row 4, in a child: it does nothing, not even what it is asked at its end; nothing of it is left."""
    stack = new_stack("--engine-hang-timeout", f"{HANG_TIMEOUT_S:g}", hostile=({"in_process": False}, SOUND))
    hit, _ = stack.workers
    engine = engine_process(hit)

    def stand_still(_: Load) -> float:
        engine.send_signal(signal.SIGSTOP)
        return time.monotonic()

    death = die(stack, stand_still)
    assert "the engine is hung" in hit.log()
    wait_until(lambda: not engine.is_running(), "the engine's process is left", 5)
    goal = f"{HANG_TIMEOUT_S:g} s + 1 s + {GRACE_S:g} s of grace + its own budget"
    figures.record(
        row=4, what="process stands still: exit 70 after", value=f"{death.seconds:.1f} s", goal=goal
    )


def test_an_engine_that_keeps_the_event_loop_ends_its_worker_and_no_request(
    new_stack: StackFactory, figures: Figures
) -> None:
    """Field report: no step, no watchdog, no signal handler runs; a thread ends the process, code 70."""
    stack = new_stack("--engine-hang-timeout", f"{HANG_TIMEOUT_S:g}", hostile=({}, SOUND))
    hit, _ = stack.workers
    death = die(stack, lambda load: strike(load, hit, Fault.FREEZES))
    assert "the event loop has stood still" in hit.log()
    figures.record(row=4, what="event loop kept: exit 70 after", value=f"{death.seconds:.1f} s", goal="11 s")
