"""When a sequence ends. Pure functions over the stop rules of a spec.

A grammar may end it, too (`following`): with the token that completes it nothing may come next. That
holds before min_tokens as well, which hold back stop ids alone, and the reason is the same as theirs.
"""

from __future__ import annotations

from typing import NamedTuple

from actors.engines.torch.sequence import Sequence
from protocols.steps import FinishReason


class Ending(NamedTuple):
    """Why a sequence ended, and the stop id the caller asked for when that was it."""

    finish_reason: FinishReason
    stop_reason: int | None = None


def ending_of(sequence: Sequence) -> Ending | None:
    """Look at the newest output token. Stop ids win over the length limit; None means go on."""
    rules = sequence.spec.stop
    newest = sequence.tokens[-1]
    if newest in rules.stop_token_ids:
        return Ending(FinishReason.STOP, newest)
    if newest in rules.eos_token_ids:
        return Ending(FinishReason.EOS)
    if sequence.output_tokens >= rules.max_tokens:
        return Ending(FinishReason.LENGTH)
    return None


def forbidden_ids(sequence: Sequence) -> frozenset[int]:
    """Ids that must not be chosen next: all stop ids until min_tokens are out."""
    rules = sequence.spec.stop
    if sequence.output_tokens >= rules.min_tokens:
        return frozenset()
    return rules.stop_token_ids | rules.eos_token_ids
