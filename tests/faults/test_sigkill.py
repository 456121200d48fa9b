"""A worker that is killed without a word: clients are moved or told, and none waits for ever."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.faults.load import Load
from tests.faults.striking import SOUND, check_survived, mixed

if TYPE_CHECKING:
    from tests.faults.conftest import StackFactory
    from tests.faults.figures import Figures

pytestmark = [pytest.mark.e2e, pytest.mark.each_engine, pytest.mark.timeout(300)]


def test_a_killed_worker_beside_another_loses_nothing_that_can_move(
    new_stack: StackFactory, figures: Figures
) -> None:
    """Row 12, two workers: plain and unary requests complete and exact, the others complete or told."""
    stack = new_stack(hostile=(SOUND, SOUND))
    with Load(stack.http_port, stack.model()) as load:
        mixed(load, max_tokens=300)
        load.wait_tokens(10)
        stack.workers[0].send(signal.SIGKILL)
        answers = load.finish()
    survived = check_survived(answers)
    figures.record(row=12, what="two workers: plain and unary lost", value=survived.lost, goal="0")
    figures.record(row=12, what="two workers: n=2 and guided told", value=survived.told, goal="counted")


def test_clients_of_the_only_worker_are_told_when_it_is_killed(
    new_stack: StackFactory, figures: Figures
) -> None:
    """Row 12, one worker: nobody to move to; every client gets an error, none hangs."""
    stack = new_stack(hostile=(SOUND,))
    with Load(stack.http_port, stack.model()) as load:
        mixed(load, max_tokens=300)
        load.wait_tokens(10)
        stack.workers[0].send(signal.SIGKILL)
        killed_s = time.monotonic()
        answers = load.finish()
    assert [str(answer) for answer in answers if not answer.is_error or not answer.is_exact] == []
    told_s = max((answer.ended_s or killed_s) - killed_s for answer in answers)
    figures.record(
        row=12,
        what="one worker: clients that hang",
        value=f"{sum(answer.is_hung for answer in answers)} of {len(answers)}",
        goal="0",
    )
    figures.record(row=12, what="one worker: the last client told after", value=f"{told_s:.2f} s", goal="1 s")
