"""Promises of the edge to the engine: what cannot be true is recognised, what can be true passes."""

from __future__ import annotations

from typing import Any

import pytest

from actors.vetting import Transcript
from protocols.spec import GenerationSpec, StopRules
from protocols.steps import Delta, EngineId, FinishReason

ID = EngineId(1)
VOCAB = 10


def transcript(n: int = 1, max_tokens: int = 4) -> Transcript:
    return Transcript(GenerationSpec(prompt=(1,), stop=StopRules(max_tokens=max_tokens), n=n), VOCAB)


def delta(token_ids: Any = (), index: Any = 0, **ends: Any) -> Delta:
    return Delta(ID, list(token_ids) if isinstance(token_ids, tuple) else token_ids, index, **ends)


def test_an_ordinary_answer_has_no_flaw() -> None:
    """Tokens, several at once, nothing at all, and the last ones with the reason."""
    said = transcript()
    answer = [delta((1, 2)), delta(), delta((9, 0), finish_reason=FinishReason.LENGTH, is_last=True)]
    assert [said.flaw_of(each) for each in answer] == [None, None, None]


def test_choices_may_end_at_different_times() -> None:
    """Each has its own count and its own end; the last one ends the request."""
    said = transcript(n=2)
    assert said.flaw_of(delta((1,), 0, finish_reason=FinishReason.EOS)) is None
    assert said.flaw_of(delta((1, 2, 3, 4), 1)) is None
    assert said.flaw_of(delta((), 1, finish_reason=FinishReason.LENGTH, is_last=True)) is None


@pytest.mark.parametrize(
    "confirmed", [delta(finish_reason=FinishReason.CANCELLED, is_last=True), delta(error="no", is_last=True)]
)
def test_an_abort_and_a_failure_end_all_choices_at_once(confirmed: Delta) -> None:
    """They need not say so for each, and may come after a choice has ended."""
    said = transcript(n=2)
    said.flaw_of(delta((1,), 0, finish_reason=FinishReason.EOS))
    assert said.flaw_of(confirmed) is None


@pytest.mark.parametrize(
    ("flawed", "words"),
    [
        (delta((-1,)), "outside its vocabulary"),
        (delta((1, VOCAB)), "outside its vocabulary"),
        (delta(("1",)), "outside its vocabulary"),
        (delta((1.0,)), "outside its vocabulary"),
        (delta((True,)), "outside its vocabulary"),
        (delta((None,)), "outside its vocabulary"),
        (delta("12"), "not a list"),
        (delta(5), "not a list"),
        (delta((1, 2, 3, 4, 5)), "more tokens"),
        (delta((1,), 2), "choice that was not asked for"),
        (delta((1,), -1), "choice that was not asked for"),
        (delta((1,), "0"), "choice that was not asked for"),
        (delta((1,), None), "choice that was not asked for"),
        (delta(is_last=True), "without a reason"),
        (delta(finish_reason="stop", is_last=True), "not known"),
        (delta(error="no"), "did not end it"),
        (delta(finish_reason=FinishReason.STOP, is_last=True), "before all of its choices"),
    ],
)
def test_what_cannot_be_true_is_named(flawed: Delta, words: str) -> None:
    """In words without content, for one request of two choices and four tokens each."""
    flaw = transcript(n=2).flaw_of(flawed)
    assert flaw is not None
    assert words in flaw
    assert not any(character.isdigit() for character in flaw)


def test_tokens_are_counted_per_choice_and_over_deltas() -> None:
    """A short neighbour does not pay for a choice that runs over."""
    said = transcript(n=2)
    assert said.flaw_of(delta((1, 2, 3), 1)) is None
    assert "more tokens" in str(said.flaw_of(delta((4, 5), 1)))


def test_a_choice_that_has_ended_says_nothing_more() -> None:
    """The framework's reader would take it for the next answer."""
    said = transcript(n=2)
    said.flaw_of(delta((1,), 0, finish_reason=FinishReason.EOS))
    assert "had ended" in str(said.flaw_of(delta((2,), 0)))
