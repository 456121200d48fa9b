"""Three workers with a real engine and real guided decoding; two of them end, each in its own way."""

from __future__ import annotations

import random
import re
import signal
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from tests.built_in import built_in_model
from tests.e2e.stacks import Reader
from tests.e2e.tiny_model import write_tiny_model
from tests.faults.moments import forget_dead

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.engines import Served
    from tests.e2e.stacks import Stack
    from tests.faults.figures import Figures

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]

SEED = 4
TOKENS = 400
REGEX = "[a-z]{300,400}"
PLAIN = 8
GUIDED = 4
SILENT = "ended without a finish reason"


def question(number: int) -> str:
    """Each has its own prompt, and so its own answer."""
    return f"What comes after {number}?"


def plain_options(**more: Any) -> dict[str, Any]:
    """Greedy, and of a set length."""
    return {"temperature": 0, "max_tokens": TOKENS, "min_tokens": TOKENS, **more}


@dataclass
class Round:
    """Answers that are being read while a worker ends."""

    plain: list[Reader] = field(default_factory=list)
    guided: list[Reader] = field(default_factory=list)
    choices: list[Reader] = field(default_factory=list)

    @classmethod
    def begin(cls, stack: Stack) -> Round:
        """Requests of three kinds at all workers."""
        client, model = stack.client, stack.model()
        guided = {"guided_regex": REGEX, "temperature": 0.9, "max_tokens": TOKENS}
        several = plain_options(n=2, temperature=0.9)
        return cls(
            [Reader(client, model, question(i), plain_options()).start() for i in range(PLAIN)],
            [Reader(client, model, question(i), {**guided, "seed": i}).start() for i in range(GUIDED)],
            [Reader(client, model, question(i), {**several, "seed": i}).start() for i in range(2)],
        )

    @property
    def all(self) -> list[Reader]:
        return [*self.plain, *self.guided, *self.choices]


def test_workers_with_a_real_engine_lose_no_request_silently(
    served: Served, tmp_path: Path, figures: Figures
) -> None:
    """SIGTERM, then SIGKILL: plain answers are those of an undisturbed worker, the others whole or told."""
    model = write_tiny_model(tmp_path / "model", built_in_model())
    dice, counts = random.Random(SEED), Counter[str]()
    options = ("--drain-timeout", "2")
    with served.stack_with_weights(tmp_path / "stack", model, *options, workers=3) as stack:
        expected = [answer_of(stack, number) for number in range(PLAIN)]
        for number in (signal.SIGTERM, signal.SIGKILL):
            asked = Round.begin(stack)
            asked.plain[0].wait_text(dice.randrange(1, TOKENS // 2))
            victim = stack.workers.pop(dice.randrange(len(stack.workers)))
            victim.send(number)
            for reader in asked.all:
                reader.finish(200)
            assert victim.child.wait(60) == (0 if number is signal.SIGTERM else -number)
            check(asked, expected)
            counts += tally(asked)
            forget_dead(tmp_path / "stack")
    figures.record(
        row="moments",
        what="real engine, SIGTERM and SIGKILL of one of three: plain exact; guided and n = 2 whole + told",
        value=f"{counts['exact']} of {2 * PLAIN}; {counts['whole']} + {counts['told']} of {2 * (GUIDED + 2)}",
        goal="all; all",
    )


def answer_of(stack: Stack, number: int) -> str:
    """Of a worker that nobody disturbs."""
    status, body = stack.chat(question(number), **plain_options())
    assert status == 200, body
    text: str = body["choices"][0]["message"]["content"]
    return text


def check(asked: Round, expected: list[str]) -> None:
    """Plain: whole and exact. Any other: whole, or its client was told."""
    for reader, text in zip(asked.plain, expected, strict=True):
        assert reader.error is None
        assert reader.reason == "length"
        assert reader.text == text
    for reader in [*asked.guided, *asked.choices]:
        assert SILENT not in str(reader.error)
    for reader in asked.guided:
        assert reader.error is not None or re.fullmatch(REGEX, reader.text)


def tally(asked: Round) -> Counter[str]:
    """How many were whole, and of how many the client was told."""
    told = sum(reader.error is not None for reader in [*asked.guided, *asked.choices])
    others = len(asked.guided) + len(asked.choices)
    return Counter(exact=len(asked.plain), whole=others - told, told=told)
