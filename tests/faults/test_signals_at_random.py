"""Signals at seeded random times: what no list of moments has thought of."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from tests.e2e.engines import Served
from tests.faults.conftest import StackFactory
from tests.faults.load import Kind, Load
from tests.faults.moments import BOTH, listed, starting, wait_catching

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(180)]

# From the handlers to a worker that serves takes one to three seconds, on a busy machine more.
LONGEST_S = 3.0
STARTS = 12
BURSTS = 6


@pytest.mark.parametrize("seed", range(STARTS))
def test_a_signal_at_any_time_of_a_start_ends_it_with_0(
    served: Served, word_model: Path, tmp_path: Path, seed: int
) -> None:
    """From the first instruction that handles signals: exit 0, nothing listed, nothing that looks broken."""
    dice = random.Random(seed)
    with starting(served.stack(tmp_path / "stack", word_model, has_frontend=False)) as worker:
        wait_catching(worker, BOTH)
        # The time is what is tested.
        time.sleep(dice.uniform(0, LONGEST_S) * seed / STARTS)
        worker.send(dice.choice(BOTH))
        assert worker.child.wait(40) == 0, worker.log()
    assert listed(tmp_path / "stack") == []
    assert "Traceback" not in worker.log()
    assert "Exception ignored" not in worker.log()


@pytest.mark.parametrize("seed", range(BURSTS))
def test_signals_in_any_order_end_a_worker_with_a_code_of_ours(new_stack: StackFactory, seed: int) -> None:
    """Two to four at random times, with requests in hand: exit 70, or 0 if all was done before the second."""
    dice = random.Random(seed)
    stack = new_stack("--drain-timeout", "2", step_ms=10)
    worker = stack.workers[0]
    with Load(stack.http_port, stack.model()) as load:
        load.start(Kind.PLAIN, 8, max_tokens=dice.choice((20, 200, 1500)))
        load.start(Kind.TWO_CHOICES, 4, max_tokens=200)
        load.wait_tokens(dice.randrange(15))
        for _ in range(dice.randrange(2, 5)):
            if worker.child.exit_code is None:
                worker.send(dice.choice(BOTH))
            time.sleep(dice.uniform(0, 0.8))
        code = worker.child.wait(40)
        answers = load.finish()
    assert code in (0, 70), worker.log()
    for answer in answers:
        assert answer.is_exact, str(answer)
        assert answer.is_complete or answer.is_error, str(answer)


def test_both_signals_at_once_are_two(new_stack: StackFactory) -> None:
    """A worker that could not run when they came counts both, and loses nobody silently."""
    stack = new_stack()
    worker = stack.workers[0]
    with Load(stack.http_port, stack.model()) as load:
        load.start(Kind.PLAIN, 8, max_tokens=500)
        load.wait_tokens(5)
        for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGCONT):
            worker.send(number)
        assert worker.child.wait(40) == 70
        answers = load.finish()
    assert [str(answer) for answer in answers if not (answer.is_error and answer.is_exact)] == []
