"""``drain``, ``resume`` and ``status`` from a shell, at a worker with requests in hand."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.e2e.stacks import ROOT
from tests.faults.load import Kind, Load

if TYPE_CHECKING:
    from tests.e2e.stacks import Stack, Worker
    from tests.faults.conftest import StackFactory
    from tests.faults.figures import Figures

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

TURNS = 20


def begin(worker: Worker, *words: str) -> subprocess.Popen[str]:
    """A sub-command at this worker, as an operator starts it."""
    environ = {**os.environ, "DYN_SYSTEM_PORT": str(worker.port)}
    return subprocess.Popen(
        [sys.executable, "-m", "service", *words], cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True
    )


def command(worker: Worker, *words: str) -> tuple[int, str]:
    """Its exit code and what it printed."""
    process = begin(worker, *words)
    said, _ = process.communicate(timeout=60)
    return process.returncode, said


def started(worker: Worker) -> int:
    """Requests that ever reached it."""
    count: int = worker.status()["started"]
    return count


def ask_in_turns(stack: Stack, turns: int = TURNS) -> None:
    """Requests one after the other; a frontend gives each worker its turn."""
    for _ in range(turns):
        status, body = stack.chat("w5", max_tokens=2)
        assert status == 200, body


def test_a_worker_drained_by_hand_finishes_its_work_and_gets_no_more(
    new_stack: StackFactory, figures: Figures
) -> None:
    """Not safe to delete while it works, safe afterwards; the other worker serves; then it comes back."""
    stack = new_stack(hostile=({}, {}))
    worker, other = stack.workers
    with Load(stack.http_port, stack.model()) as load:
        # Longer than the sub-commands take to start.
        load.start(Kind.PLAIN, 24, max_tokens=700)
        load.start(Kind.TWO_CHOICES, 8, max_tokens=700)
        load.wait_tokens(5)
        draining = begin(worker, "drain", "--timeout", "60")
        worker.wait_status(lambda state: state["state"] == "draining")
        code, said = command(worker, "status")
        assert code == 0
        assert "draining" in said
        assert "NOT safe to delete" in said
        before = started(worker)
        ask_in_turns(stack)
        answers = load.finish()
        said, _ = draining.communicate(timeout=60)
    assert [str(answer) for answer in answers if not answer.is_complete] == []
    assert draining.returncode == 0
    assert "; safe to delete" in said
    assert "interrupted" not in said
    came = started(worker) - before
    assert came == 0
    assert command(worker, "status")[1].startswith(
        "drained: 0 live, 0 sequences in the engine; safe to delete"
    )
    assert command(worker, "resume")[0] == 0
    resumed, others = started(worker), started(other)
    while started(worker) == resumed:
        ask_in_turns(stack, 1)
    assert started(other) - others < TURNS * 50
    figures.record(
        row="drain",
        what=f"drain by hand, 32 in flight: lost; of {TURNS} requests meanwhile, to the drained worker",
        value=f"{sum(not answer.is_complete for answer in answers)}; {came}",
        goal="0; 0",
    )


def test_a_drain_by_hand_moves_what_outlives_its_budget(new_stack: StackFactory) -> None:
    """One second for answers of six: plain ones go on elsewhere, the others are told; then it is safe."""
    stack = new_stack(hostile=({}, {}))
    worker = stack.workers[0]
    with Load(stack.http_port, stack.model()) as load:
        load.start(Kind.PLAIN, 16, max_tokens=300)
        load.start(Kind.GUIDED, 8, max_tokens=300)
        load.wait_tokens(5)
        code, said = command(worker, "drain", "--timeout", "1")
        answers = load.finish()
    assert code == 0, said
    assert "; safe to delete" in said
    for answer in answers:
        assert answer.is_complete or (answer.is_error and not answer.kind.is_movable), str(answer)
        assert answer.is_exact, str(answer)
    assert any(answer.is_error for answer in answers)
    assert worker.child.exit_code is None


def test_a_signal_during_a_drain_by_hand_ends_the_worker_when_it_is_done(new_stack: StackFactory) -> None:
    """The drain goes on, nobody is lost, exit 0; there is no way back any more."""
    stack = new_stack(step_ms=20)
    worker = stack.workers[0]
    with Load(stack.http_port, stack.model()) as load:
        load.start(Kind.PLAIN, 16, max_tokens=150)
        load.wait_tokens(5)
        draining = begin(worker, "drain", "--timeout", "60")
        worker.wait_status(lambda state: state["state"] == "draining")
        worker.child.ask_to_stop()
        code, _ = command(worker, "resume")
        answers = load.finish()
        draining.communicate(timeout=60)
    assert code == 1
    assert worker.child.wait(20) == 0
    assert [str(answer) for answer in answers if not answer.is_complete] == []
