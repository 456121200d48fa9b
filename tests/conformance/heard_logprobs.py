"""Holds what an engine says about likelihoods against what all engines promise."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from protocols.spec import GenerationSpec
    from protocols.steps import Candidate, Delta, Position

# Of sums of exponentials in 32 bits.
ROUNDING = 1e-3


def check_logprobs(delta: Delta, spec: GenerationSpec, vocab_size: int, *, is_first: bool) -> None:
    """As many positions as tokens, each about its own; the prompt's with the first token."""
    asked = spec.output.logprobs
    if asked is not None and delta.token_ids:
        assert delta.positions is not None, f"{delta}: no logprobs, and they were asked for"
        check_positions(delta.positions, delta.token_ids, asked, vocab_size)
    asked = spec.output.prompt_logprobs
    told = delta.prompt_positions
    if asked is None or not is_first:
        return
    assert told is not None, f"{delta}: no logprobs of the prompt with the first token"
    assert told[0] is None, f"{delta}: a logprob of the prompt's first token"
    rest = [position for position in told[1:] if position is not None]
    check_positions(rest, spec.prompt[1:], asked, vocab_size)


def check_positions(
    positions: Sequence[Position], token_ids: Sequence[int], asked: int, vocab_size: int
) -> None:
    """The token itself first, then at most ``asked`` others, the most likely; nothing where it is unknown."""
    assert len(positions) == len(token_ids), "another number of positions than of tokens"
    for position, token_id in zip(positions, token_ids, strict=True):
        if not position:
            continue
        own, *rivals = position
        assert own.token_id == token_id, "the first candidate is not the token that stands there"
        assert len(rivals) <= asked, "more rivals than were asked for"
        assert len(rivals) >= min(asked, vocab_size) - 1, "fewer rivals than were asked for"
        ids = [candidate.token_id for candidate in position]
        assert len(set(ids)) == len(ids), "one token twice in one position"
        for candidate in position:
            check_candidate(candidate, vocab_size)
        assert rivals == sorted(rivals, key=lambda rival: (-rival.logprob, rival.rank)), "rivals out of order"
        assert all((rival.logprob > own.logprob) <= (rival.rank < own.rank) for rival in rivals), "ranks lie"


def check_candidate(candidate: Candidate, vocab_size: int) -> None:
    """A token of the vocabulary, a place among its tokens, and a logarithm of a probability."""
    assert 0 <= candidate.token_id < vocab_size, f"{candidate}: not in the vocabulary"
    assert 1 <= candidate.rank <= vocab_size, f"{candidate}: no rank"
    assert not math.isnan(candidate.logprob), f"{candidate}: not a number"
    assert candidate.logprob <= ROUNDING, f"{candidate}: more likely than certain"
