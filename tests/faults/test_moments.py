"""Two workers under mixed load; one of them ends at a random moment, many times, and is replaced."""

from __future__ import annotations

import random
import signal
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

import pytest

from tests.e2e.request_lines import TRACED
from tests.e2e.waiting import wait_until
from tests.faults.books import handed_on, misbooked
from tests.faults.conftest import add_hostile
from tests.faults.load import Answer, Kind, Load
from tests.faults.moments import forget_dead

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.stacks import Stack, Worker
    from tests.faults.conftest import StackFactory
    from tests.faults.figures import Figures

pytestmark = [pytest.mark.e2e, pytest.mark.each_engine, pytest.mark.timeout(900)]

SEED = 20_261_130
TOKENS = 100
STEP_MS = 20
# Shorter than what an answer takes: some requests outlive it, and the plain ones of them are moved.
DRAIN_S = 1.2


@dataclass
class Tally:
    """What became of all requests of all moments."""

    answers: Counter[Kind] = field(default_factory=Counter[Kind])
    complete: Counter[Kind] = field(default_factory=Counter[Kind])
    told: Counter[Kind] = field(default_factory=Counter[Kind])
    exits: Counter[str] = field(default_factory=Counter[str])
    handed_on: int = 0

    def add(self, answers: list[Answer]) -> None:
        """The answers of one moment."""
        for answer in answers:
            self.answers[answer.kind] += 1
            self.complete[answer.kind] += answer.is_complete
            self.told[answer.kind] += answer.is_error


def mixed_load(load: Load) -> list[Answer]:
    """Requests that a frontend can move, two of them with a least length, and requests that it cannot."""
    answers = load.start(Kind.PLAIN, 10, max_tokens=TOKENS)
    answers += load.start(Kind.PLAIN, 4, max_tokens=TOKENS, min_tokens=TOKENS)
    answers += load.start(Kind.UNARY, 2, max_tokens=TOKENS)
    answers += load.start(Kind.GUIDED, 4, max_tokens=TOKENS)
    answers += load.start(Kind.TWO_CHOICES, 4, max_tokens=TOKENS)
    return answers


def check_moment(answers: list[Answer]) -> None:
    """Plain: complete and exact. Any other: complete, or its client was told; never a wrong token."""
    for answer in answers:
        assert not answer.is_hung, str(answer)
        assert not answer.is_silent, str(answer)
        assert answer.is_exact, str(answer)
        assert answer.is_complete or not answer.kind.is_movable, str(answer)
        assert answer.is_complete or answer.is_error, str(answer)


def test_random_moments_lose_no_request_silently(
    new_stack: StackFactory, figures: Figures, moments: int, tmp_path: Path
) -> None:
    """SIGTERM and SIGKILL: plain requests complete and exact, any other one complete or its client told.

    After a SIGTERM what each client saw is also what the workers wrote of its request. A worker that was
    killed wrote no end: what is counted there is the clients' view alone.
    """
    dice, tally, requests = random.Random(SEED), Tally(), count()
    stack = new_stack("--drain-timeout", str(DRAIN_S), step_ms=STEP_MS, hostile=({}, {}), environ=TRACED)
    numbers = [signal.SIGTERM, signal.SIGKILL] * (moments // 2)
    dice.shuffle(numbers)
    for number in numbers:
        victim = stack.workers.pop(dice.randrange(2))
        with Load(stack.http_port, stack.model(), numbers=requests) as load:
            mixed_load(load)
            load.wait_tokens(dice.randrange(TOKENS - 5))
            victim.send(number)
            add_hostile(stack, {})
            if number is signal.SIGTERM:
                # Some come after the signal; a frontend that finds a dead worker does not move them.
                load.start(Kind.PLAIN, 4, max_tokens=TOKENS)
            answers = load.finish()
        check_moment(answers)
        tally.add(answers)
        tally.exits[number.name] += 1
        if number is signal.SIGTERM:
            assert victim.child.wait(20) == 0
            check_books(stack, victim, answers)
            tally.handed_on += handed_on(answers, victim.log())
        else:
            assert victim.child.wait(20) == -signal.SIGKILL
        forget_dead(tmp_path / "stack")
        stack.wait_ready()
    record(figures, tally)


def check_books(stack: Stack, victim: Worker, answers: list[Answer]) -> None:
    """Whoever was told of an error is in the victim's log, whoever was not is completed in one of them."""
    ended = victim.log()

    def flaws() -> list[str]:
        return misbooked(answers, ended, [worker.log() for worker in stack.workers])

    # A client may have read its last token before the worker that lives has written of it.
    wait_until(lambda: not flaws(), flaws, 10, every_s=0.1)


def record(figures: Figures, tally: Tally) -> None:
    """The whole run as figures."""
    plain = [kind for kind in Kind if kind.is_movable]
    others = [kind for kind in Kind if not kind.is_movable]
    asked, whole = (sum(tally.answers[kind] for kind in plain), sum(tally.complete[kind] for kind in plain))
    exits = ", ".join(f"{times} {name}" for name, times in sorted(tally.exits.items()))
    what = f"{tally.exits.total()} random moments ({exits})"
    figures.record(
        row="moments", what=f"{what}: plain, complete and exact", value=f"{whole} of {asked}", goal="all"
    )
    asked, whole, told = (
        sum(counts[kind] for kind in others) for counts in (tally.answers, tally.complete, tally.told)
    )
    figures.record(
        row="moments",
        what=f"{what}: guided and n = 2, complete + told",
        value=f"{whole} + {told} of {asked}",
        goal="all",
    )
    figures.record(
        row="moments",
        what="of these at a SIGTERM: complete, and handed on by the worker that ended",
        value=str(tally.handed_on),
        goal="counted",
    )
