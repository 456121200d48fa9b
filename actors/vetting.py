"""What an engine cannot mean: the checks at the edge between an engine and everyone else."""

from __future__ import annotations

from protocols.spec import GenerationSpec
from protocols.steps import Delta, FinishReason


def flaw_of(delta: Delta, spec: GenerationSpec, tokens_before: int, vocab_size: int) -> str | None:
    """Why this delta cannot be true, in words without content; None when it can.

    tokens_before: tokens the request had over all its choices.
    """
    token_ids = delta.token_ids
    for token in token_ids:
        if type(token) is not int or not 0 <= token < vocab_size:
            return "the engine produced a token outside its vocabulary"
    if tokens_before + len(token_ids) > spec.stop.max_tokens * spec.n:
        return "the engine produced more tokens than were asked for"
    if not 0 <= delta.index < spec.n:
        return "the engine produced a choice that was not asked for"
    if delta.is_last and delta.error is None and delta.finish_reason is None:
        return "the engine ended without a reason"
    if delta.finish_reason is not None and type(delta.finish_reason) is not FinishReason:
        return "the engine gave a finish reason that is not known"
    return None
