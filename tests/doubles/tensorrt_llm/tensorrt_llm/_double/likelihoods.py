"""Log probabilities as the library gives them: a dictionary for each token, ranks from 1.

Those of the prompt are one place early: the entry of a token is about the token after it, and the last entry
is about the first token of the answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocols.steps import Candidate, Position
from tensorrt_llm.executor.outputs import Logprob, TokenLogprobs
from tensorrt_llm.sampling_params import SamplingParams

# Of engines that compute none.
_UNKNOWN = -1.0


def entry_of(
    position: Position, token: int, count: int | None, ranks: str | None = None
) -> dict[int, Logprob]:
    """The ``count`` most likely tokens, then the token itself if it is none of them."""
    own = position[0] if position and position[0].token_id == token else Candidate(token, _UNKNOWN, 1)
    if not count:
        named = [own]
    else:
        rivals = sorted(position or [own], key=lambda each: each.rank)
        named = [each for each in rivals[:count] if each.rank <= count]
        named = named if own in named else [*named, own]
    return {each.token_id: Logprob(each.logprob, _rank(each, ranks)) for each in named}


def prompt_entries(
    positions: Sequence[Position | None],
    first: Position,
    sampling: SamplingParams,
    names: Sequence[int] | None = None,
    reused: int = 0,
) -> TokenLogprobs:
    """One for each token of the prompt but the first ``reused``. names: tokens that are named instead."""
    shifted = [*positions[1:], first][reused:]
    entries = [entry_of(each or [], _token_of(each), sampling.prompt_logprobs) for each in shifted]
    if names is not None:
        count = sampling.prompt_logprobs or 0
        entries = [_misnamed(entry, count, token) for entry, token in zip(entries, names, strict=False)]
    if sampling.prompt_logprobs_simple_format:
        return [next(iter(entry.values())).logprob for entry in entries]
    return entries


def _misnamed(entry: dict[int, Logprob], count: int, token: int) -> dict[int, Logprob]:
    """The ``count`` most likely ones stay; the one that they were asked for gives way to another."""
    likely = {each: found for each, found in entry.items() if (found.rank or 0) <= count}
    return likely if token in likely else {**likely, token: Logprob(_UNKNOWN, None)}


def _token_of(position: Position | None) -> int:
    return position[0].token_id if position else 0


def _rank(candidate: Candidate, ranks: str | None) -> int | None:
    match ranks:
        case "missing":
            return None
        case "zero":
            return 0
        case _:
            return candidate.rank
