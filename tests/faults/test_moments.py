"""Two workers under mixed load; one of them ends at a random moment, thirty times, and is replaced."""

from __future__ import annotations

import random
import re
import signal
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from tests.faults.conftest import add_hostile
from tests.faults.load import Answer, Kind, Load
from tests.faults.moments import forget_dead

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.stacks import Worker
    from tests.faults.conftest import StackFactory
    from tests.faults.figures import Figures

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

SEED = 20_261_130
MOMENTS = 30
TOKENS = 100
STEP_MS = 20
# Shorter than what an answer takes: some requests outlive it, and the plain ones of them are moved.
DRAIN_S = 1.2
_ENDED = re.compile(r"request\.ended .*?outcome=(\w+)")


@dataclass
class Tally:
    """What became of all requests of all moments."""

    answers: Counter[Kind] = field(default_factory=Counter[Kind])
    complete: Counter[Kind] = field(default_factory=Counter[Kind])
    told: Counter[Kind] = field(default_factory=Counter[Kind])
    exits: Counter[str] = field(default_factory=Counter[str])

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


def outcomes_said(worker: Worker) -> Counter[str]:
    """How its requests ended, by the line that each of them has in its log."""
    return Counter(_ENDED.findall(worker.log()))


def check_moment(answers: list[Answer]) -> None:
    """Plain: complete and exact. Any other: complete, or its client was told; never a wrong token."""
    for answer in answers:
        assert not answer.is_hung, str(answer)
        assert not answer.is_silent, str(answer)
        assert answer.is_exact, str(answer)
        assert answer.is_complete or not answer.kind.is_movable, str(answer)
        assert answer.is_complete or answer.is_error, str(answer)


def test_thirty_random_moments_lose_no_request_silently(
    new_stack: StackFactory, figures: Figures, tmp_path: Path
) -> None:
    """SIGTERM and SIGKILL in turns: plain requests complete and exact, any other one complete or counted."""
    dice, tally = random.Random(SEED), Tally()
    stack = new_stack("--drain-timeout", str(DRAIN_S), step_ms=STEP_MS, hostile=({}, {}))
    numbers = [signal.SIGTERM, signal.SIGKILL] * (MOMENTS // 2)
    dice.shuffle(numbers)
    for number in numbers:
        victim = stack.workers.pop(dice.randrange(2))
        with Load(stack.http_port, stack.model()) as load:
            mixed_load(load)
            load.wait_tokens(dice.randrange(TOKENS - 5))
            victim.send(number)
            if number is signal.SIGTERM:
                # Some come after the signal; a frontend that finds a dead worker does not move them.
                load.start(Kind.PLAIN, 4, max_tokens=TOKENS)
            answers = load.finish()
        check_moment(answers)
        check_end(victim, number, answers)
        tally.add(answers)
        tally.exits[number.name] += 1
        forget_dead(tmp_path / "stack")
        add_hostile(stack, {})
        stack.wait_ready()
    record(figures, tally)


def check_end(victim: Worker, number: signal.Signals, answers: list[Answer]) -> None:
    """SIGTERM: exit 0, and its books have at least one entry for each client that was told of an error."""
    if number is signal.SIGKILL:
        assert victim.child.wait(20) == -signal.SIGKILL
        return
    assert victim.child.wait(20) == 0
    said = outcomes_said(victim)
    told = sum(answer.is_error for answer in answers)
    assert said["interrupted"] + said["failed"] >= told, (said, told)


def record(figures: Figures, tally: Tally) -> None:
    """The whole run as figures."""
    plain = [kind for kind in Kind if kind.is_movable]
    others = [kind for kind in Kind if not kind.is_movable]
    asked, whole = (sum(tally.answers[kind] for kind in plain), sum(tally.complete[kind] for kind in plain))
    what = f"{MOMENTS} random moments ({tally.exits['SIGTERM']} SIGTERM, {tally.exits['SIGKILL']} SIGKILL)"
    figures.record(
        row="moments", what=f"{what}: plain, complete and exact", value=f"{whole} of {asked}", goal="all"
    )
    asked, whole, told = (
        sum(counts[kind] for kind in others) for counts in (tally.answers, tally.complete, tally.told)
    )
    figures.record(
        row="moments",
        what=f"{what}: guided and n = 2, complete + told and counted",
        value=f"{whole} + {told} of {asked}",
        goal="all",
    )
