"""When an engine may be told to end a request early: a table.

Measured elsewhere with 1.3.0rc22: a prefill is ended at once until its context is committed; from then on
the call changes nothing, and the blocks are kept until somebody has read them or the transfer's time-out
has passed. A decode that is ended while its KV cache is under way leaves the prefill worker with blocks
that nobody reads, and an engine may break over it.

A request for logprobs of its prompt that ends before its first token has none, and the thread that looks for
them loses what it has of others at that moment.
"""

from __future__ import annotations

from enum import Enum

from protocols.spec import Stage


class Heard(Enum):
    """What the engine has said of a request so far."""

    NOTHING = "nothing"
    TOKENS = "tokens"
    # Its last word, be it an error: of a prefill, that the context is committed.
    END = "end"


class AbortMoment(Enum):
    """When a wished abort is told."""

    NOW = "now"
    # Or with its error, whichever comes first; then the engine has no transfer of it any more.
    WITH_FIRST_TOKEN = "with_first_token"  # noqa: S105 - not a password: a token of an answer
    NEVER = "never"


_MOMENTS: dict[tuple[Stage, Heard], AbortMoment] = {
    (Stage.WHOLE, Heard.NOTHING): AbortMoment.NOW,
    (Stage.WHOLE, Heard.TOKENS): AbortMoment.NOW,
    (Stage.WHOLE, Heard.END): AbortMoment.NEVER,
    (Stage.PREFILL, Heard.NOTHING): AbortMoment.NOW,
    (Stage.PREFILL, Heard.TOKENS): AbortMoment.NEVER,
    (Stage.PREFILL, Heard.END): AbortMoment.NEVER,
    (Stage.DECODE, Heard.NOTHING): AbortMoment.WITH_FIRST_TOKEN,
    (Stage.DECODE, Heard.TOKENS): AbortMoment.NOW,
    (Stage.DECODE, Heard.END): AbortMoment.NEVER,
}


def when_to_abort(stage: Stage, heard: Heard, *, tells_prompt: bool = False) -> AbortMoment:
    """Asked when an abort is wished, and again at each response while it is put off.

    tells_prompt: whether logprobs of the prompt are asked for.
    """
    if tells_prompt and heard is Heard.NOTHING:
        return AbortMoment.WITH_FIRST_TOKEN
    return _MOMENTS[stage, heard]
