"""Promises of the edge to the engine about logprobs: a value that cannot be the token's own never passes."""

from __future__ import annotations

import math
from typing import Any

import pytest

from actors.vetting import Transcript
from protocols.spec import GenerationSpec, Output, StopRules
from protocols.steps import Candidate, Delta, EngineId, FinishReason

ID = EngineId(1)
VOCAB = 10
PROMPT = (3, 4, 5)


def transcript(**asked: int) -> Transcript:
    return Transcript(
        GenerationSpec(prompt=PROMPT, stop=StopRules(max_tokens=8), output=Output(**asked)), VOCAB
    )


def candidate(token_id: Any = 1, logprob: Any = -0.5, rank: Any = 1) -> Candidate:
    return Candidate(token_id, logprob, rank)


def delta(token_ids: Any, positions: Any = None, prompt: Any = None, **ends: Any) -> Delta:
    return Delta(ID, token_ids, positions=positions, prompt_positions=prompt, **ends)


PROMPT_TOLD: list[Any] = [None, [candidate(4, -3.0, 2), candidate(9)], [candidate(5)]]


def test_sound_logprobs_pass() -> None:
    """The chosen token first, rivals after it, nothing where the engine does not know, and minus infinity."""
    said = transcript(logprobs=2, prompt_logprobs=1)
    rivals = [candidate(1, -2.0, 3), candidate(7, -0.1, 1), candidate(2, -math.inf, 2)]
    assert said.flaw_of(delta([1, 2], [rivals, []], PROMPT_TOLD)) is None
    assert said.flaw_of(delta([3], [[candidate(3, 1e-7)]])) is None
    assert said.flaw_of(delta([], finish_reason=FinishReason.EOS, is_last=True)) is None


def test_the_prompts_may_come_before_the_first_token() -> None:
    """On a delta of their own."""
    said = transcript(prompt_logprobs=0)
    assert said.flaw_of(delta([], None, PROMPT_TOLD)) is None
    assert said.flaw_of(delta([1])) is None


def test_nobody_is_asked_who_was_not_asked() -> None:
    """A request without the options is not vetted for them."""
    assert transcript().flaw_of(delta([1], "nonsense", "nonsense")) is None


@pytest.mark.parametrize(
    "positions",
    [
        None,
        [],
        [[candidate()], [candidate()]],
        ([candidate()],),
        [(candidate(),)],
        [None],
        [[candidate(2)]],
        [[candidate(rank=0)]],
        [[candidate(rank=VOCAB + 1)]],
        [[candidate(rank=1.0)]],
        [[candidate(logprob=math.nan)]],
        [[candidate(logprob=0.5)]],
        [[candidate(logprob=-1)]],
        [[candidate(logprob=None)]],
        [[candidate(), candidate(VOCAB)]],
        [[candidate(), candidate(-1)]],
        [[candidate(), candidate("2")]],
        [[candidate(), candidate(2, math.nan)]],
    ],
)
def test_logprobs_that_cannot_be_true_are_named(positions: Any) -> None:
    """Another number of them, another token's, no rank, no number: in words without content."""
    flaw = transcript(logprobs=1).flaw_of(delta([1], positions))
    assert flaw is not None
    assert "logprob" in flaw
    assert not any(character.isdigit() for character in flaw)


@pytest.mark.parametrize(
    "prompt",
    [
        None,
        [],
        tuple(PROMPT_TOLD),
        PROMPT_TOLD[1:],
        [*PROMPT_TOLD, [candidate()]],
        [[candidate(3)], *PROMPT_TOLD[1:]],
        [None, None, [candidate(5)]],
        [None, [candidate(5)], [candidate(4)]],
    ],
)
def test_a_prompts_logprobs_that_cannot_be_true_are_named(prompt: Any) -> None:
    """Shifted by one (A63), for another number of tokens, missing with the first token, or not a list."""
    flaw = transcript(prompt_logprobs=1).flaw_of(delta([1], None, prompt))
    assert flaw is not None
    assert "logprob" in flaw
