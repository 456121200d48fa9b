"""What an engine says: deltas of one step, for all requests at once.

These are made once per token and request, on the hot path, so they are msgspec structs:
frozen, slotted, and four times cheaper to build than a frozen dataclass.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NewType

from msgspec import Struct

EngineId = NewType("EngineId", int)
"""Our own id of one request at the engine: a counter, never the caller's id."""


class FinishReason(StrEnum):
    """Why a choice ended. The values are the ones the framework's adapter accepts."""

    STOP = "stop"
    EOS = "eos"
    LENGTH = "length"
    CANCELLED = "cancelled"


class Delta(Struct, frozen=True, gc=False):
    """New tokens of one choice.

    engine_id: the request. index: the choice, 0 .. n-1.
    token_ids: only the ids of this step, never cumulative; may be empty.
    finish_reason: set on the last delta of this choice.
    is_last: set on the last delta of the whole request: its slot and memory are free again.
    error: the request failed (text is stable and free of content); then is_last is true.
    cached_tokens: prompt tokens that were not computed; on the request's first delta.
    """

    engine_id: EngineId
    token_ids: list[int]
    index: int = 0
    finish_reason: FinishReason | None = None
    is_last: bool = False
    stop_reason: int | str | None = None
    error: str | None = None
    cached_tokens: int = 0


class EngineStep(Struct, frozen=True, gc=False):
    """One iteration of the engine, all requests in it.

    started_s, ended_s: monotonic seconds. running: sequences in the batch of this step.
    used_blocks: KV blocks in use after it (0 where the engine has none).
    """

    deltas: list[Delta]
    started_s: float
    ended_s: float
    running: int = 0
    used_blocks: int = 0
