"""TensorRT-LLM's log-probabilities as candidates of positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from protocols.steps import Candidate, Position


def position_of(entry: Mapping[int, Any] | float | None, token: int, alternatives: int) -> Position:
    """The candidates of one position: the token that stands there, then the most likely ones.

    entry: by token id, ``Logprob(logprob, rank)``; a plain number is the token's own. Empty where the
    entry does not know the token: another's value is never taken for it.
    alternatives: so many of the most likely ones are told; the token itself may be one of them. Where the
    library gives no ranks, places among what it told stand for them.
    """
    if isinstance(entry, float | int):
        return [Candidate(token, float(entry), 1)]
    if not entry or token not in entry:
        return []
    ranked = sorted(entry.items(), key=lambda item: -item[1].logprob)
    ranks = {other: int(found.rank or place) for place, (other, found) in enumerate(ranked, start=1)}
    own = entry[token]
    rivals = [
        Candidate(other, float(found.logprob), ranks[other])
        for other, found in ranked[:alternatives]
        if other != token
    ]
    return [Candidate(token, float(own.logprob), ranks[token]), *rivals]


def positions_of(
    entries: Sequence[Any] | None, token_ids: Sequence[int], first: int, total: int, alternatives: int
) -> list[Position]:
    """One for each of ``token_ids``, which stand from place ``first`` on in an answer of ``total`` tokens.

    entries: the whole answer's so far. A decode worker may have none for its first token, which another
    worker chose: the entries then belong to the last tokens.
    """
    known = entries or ()
    missing = max(0, total - len(known))
    return [
        position_of(known[place - missing], token, alternatives) if place >= missing else []
        for place, token in enumerate(token_ids, start=first)
    ]


def prompt_positions_of(
    entries: Sequence[Any] | None, prompt: Sequence[int], alternatives: int
) -> list[Position | None]:
    """One for each prompt token; None for the first, in front of which nothing stands.

    The library computes an entry from the logits *at* a token, so that it tells of the one behind it.
    """
    known = entries or ()
    return [
        None,
        *(
            position_of(known[place], token, alternatives) if place < len(known) else []
            for place, token in enumerate(prompt[1:])
        ),
    ]
