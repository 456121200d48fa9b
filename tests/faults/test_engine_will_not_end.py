"""An engine that starts half-way or does not stop: the process ends, and leaves nothing behind."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.doubles.hostile_engine import Fault
from tests.e2e.waiting import wait_log, wait_until
from tests.faults.load import Kind, Load
from tests.faults.striking import (
    SOUND,
    die,
    engine_process,
    exit_of,
    incomplete,
    strike,
)

if TYPE_CHECKING:
    from tests.e2e.stacks import Worker
    from tests.faults.conftest import StackFactory, WorkerFactory
    from tests.faults.figures import Figures

pytestmark = [pytest.mark.e2e, pytest.mark.each_engine, pytest.mark.timeout(300)]

STARTS = {"refuses": 2, "crashes": 1, "dies": 1, "ends at once": 70}
STOPS = {"waits": 0, "raises": 0, "blocks": 70}


@pytest.mark.parametrize("how", STARTS)
def test_a_start_that_fails_half_way_leaves_nothing_behind(
    new_worker: WorkerFactory, figures: Figures, how: str
) -> None:
    """The engine's process is up, then the start fails: its exit code, and no process left."""
    worker = new_worker({"in_process": False, "start": how})
    engine = _engine_of(worker)
    code, _ = exit_of(worker, 60)
    assert code == STARTS[how]
    wait_until(lambda: not engine.is_running(), "the engine's process is left", 5)
    assert "worker.state" in worker.log()
    figures.record(
        row="start", what=f"half-way, {how}: exit code, processes left", value=f"{code}, 0", goal="as said"
    )


def test_a_signal_ends_a_start_that_hangs(new_worker: WorkerFactory, figures: Figures) -> None:
    """SIGTERM while the engine loads for ever: code 0, soon, and no process left."""
    worker = new_worker({"in_process": False, "start": "hangs"})
    engine = _engine_of(worker)
    wait_log(worker, "hostile: the start")
    worker.send(signal.SIGTERM)
    asked_s = time.monotonic()
    code, ended_s = exit_of(worker, 60)
    assert code == 0
    wait_until(lambda: not engine.is_running(), "the engine's process is left", 5)
    value = f"{code} after {ended_s - asked_s:.1f} s"
    figures.record(row="start", what="hangs, SIGTERM: exit code", value=value, goal="0, soon")


def test_a_signal_ends_a_start_that_keeps_the_event_loop(new_worker: WorkerFactory, figures: Figures) -> None:
    """SIGTERM while the engine is stuck in its library, loop and all.

    No handler of a signal runs, so without a guard the framework would end it, with a code that says nothing.
    """
    worker = new_worker({"in_process": False, "start": "freezes"}, "--drain-timeout", "1")
    engine = _engine_of(worker)
    wait_log(worker, "hostile: the start")
    worker.send(signal.SIGTERM)
    asked_s = time.monotonic()
    code, ended_s = exit_of(worker, 60)
    assert code == 70
    wait_until(lambda: not engine.is_running(), "the engine's process is left", 5)
    value = f"{code} after {ended_s - asked_s:.1f} s"
    figures.record(
        row="start", what="keeps the loop, SIGTERM: exit code", value=value, goal="70 within 16.5 s"
    )


@pytest.mark.parametrize("how", STOPS)
def test_an_engine_that_refuses_to_stop_does_not_keep_the_process(
    new_stack: StackFactory, figures: Figures, how: str
) -> None:
    """SIGTERM with requests in hand: all complete and exact, then the exit within its budget."""
    stack = new_stack("--drain-timeout", "10", hostile=({"in_process": False, "stop": how},))
    worker = stack.workers[0]
    engine = engine_process(worker)
    with Load(stack.http_port, stack.model()) as load:
        load.start(Kind.PLAIN, 64, max_tokens=100)
        load.wait_tokens(10)
        worker.send(signal.SIGTERM)
        asked_s = time.monotonic()
        code, ended_s = exit_of(worker, 60)
        answers = load.finish()
    assert incomplete(answers) == []
    assert code == STOPS[how]
    wait_until(lambda: not engine.is_running(), "the engine's process is left", 5)
    # Grace, drain and the framework's margin: see docs/operations.md.
    value = f"{code} after {ended_s - asked_s:.1f} s, {len(incomplete(answers))} of {len(answers)} lost"
    figures.record(row="stop", what=f"engine {how}: exit code", value=value, goal="within 25.5 s")


@pytest.mark.parametrize("how", ["waits", "blocks"])
def test_a_dead_engine_that_refuses_to_stop_ends_all_the_same(
    new_stack: StackFactory, figures: Figures, how: str
) -> None:
    """Death and a stop that never returns: the second worker takes over, exit 70."""
    stack = new_stack("--engine-hang-timeout", "5", hostile=({"stop": how}, SOUND))
    hit, _ = stack.workers
    death = die(stack, lambda load: strike(load, hit, Fault.DIES))
    value = f"{death.seconds:.1f} s, {death.survived.lost} lost"
    figures.record(row="stop", what=f"engine dead and {how}: exit 70 after", value=value, goal="its budget")


def _engine_of(worker: Worker) -> psutil.Process:
    """The engine's process, as soon as there is one."""
    found: list[psutil.Process] = []

    def is_there() -> bool:
        try:
            found.append(engine_process(worker))
        except (AssertionError, psutil.Error):
            return False
        return True

    wait_until(lambda: is_there() or worker.child.exit_code is not None, "no engine process")
    assert found, worker.log()
    return found[0]
