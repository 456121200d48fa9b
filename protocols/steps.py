"""What an engine says: deltas of one step, for all requests at once.

These are made once per token and request, on the hot path, so they are msgspec structs:
frozen, slotted, and four times cheaper to build than a frozen dataclass.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NewType

import msgspec
from msgspec import Struct

EngineId = NewType("EngineId", int)
"""Our own id of one request at the engine: a counter, never the caller's id."""


class FinishReason(StrEnum):
    """Why a choice ended. The values are the ones the framework's adapter accepts."""

    STOP = "stop"
    EOS = "eos"
    LENGTH = "length"
    CANCELLED = "cancelled"


class Candidate(Struct, frozen=True, gc=False):
    """One token that could have stood at a position. rank: 1 is the most likely one of the vocabulary."""

    token_id: int
    logprob: float
    rank: int


Position = list[Candidate]
"""The candidates of one position: the token that stands there first, then the most likely ones.

Natural logarithms of the model's own distribution, before temperature, penalties and masks. Empty where
an engine does not know the token that stands there: a missing value is never another token's.
"""


class KvStored(Struct, frozen=True, kw_only=True):
    """Full blocks of one chain now lie in the KV cache, parents first.

    block_hashes: unsigned 64-bit, a function of everything in front of the block and in it.
    token_ids: of all these blocks, ``block_tokens`` each. parent_hash: of the block in front of the
    first one, None at the beginning of a prompt. rank: attention-DP rank.
    """

    block_hashes: tuple[int, ...]
    token_ids: tuple[int, ...]
    block_tokens: int
    parent_hash: int | None = None
    cache_salt: str | None = None
    adapter: str | None = None
    rank: int = 0


class KvRemoved(Struct, frozen=True, kw_only=True):
    """These blocks no longer lie in the KV cache."""

    block_hashes: tuple[int, ...]
    rank: int = 0


class KvLost(Struct, frozen=True, kw_only=True):
    """So many events of a rank never came: what is known of its cache may be wrong."""

    count: int
    rank: int = 0


class KvMalformed(Struct, frozen=True, kw_only=True):
    """So many events of a rank made no sense."""

    count: int
    rank: int = 0


class KvCleared(Struct, frozen=True, kw_only=True):
    """Nothing lies in the KV cache of a rank any more."""

    rank: int = 0


KvEvent = KvStored | KvRemoved | KvLost | KvMalformed | KvCleared


class RankBlocks(Struct, frozen=True, kw_only=True):
    """The KV cache of one attention-DP rank, in blocks.

    hit_rate: share of the looked-up blocks that were there, 0 to 1; None: unknown.
    """

    rank: int
    used: int
    total: int
    hit_rate: float | None = None


class EngineTiming(Struct, frozen=True, kw_only=True, gc=False):
    """What an engine measured of one request itself, in seconds; None where it did not.

    queued_s: until it was scheduled first. prefill_s: from there to the first token. decode_s: to the last.
    transfer_s: how long its KV cache was on the way between two workers.
    """

    queued_s: float | None = None
    prefill_s: float | None = None
    decode_s: float | None = None
    transfer_s: float | None = None


class Delta(Struct, frozen=True, gc=False):
    """New tokens of one choice.

    engine_id: the request. index: the choice, 0 .. n-1.
    token_ids: only the ids of this step, never cumulative; may be empty.
    finish_reason: set on the last delta of this choice.
    is_last: set on the last delta of the whole request: its slot and memory are free again.
    error: the request failed (text is stable and free of content); then is_last is true.
    cached_tokens: prompt tokens that were not computed; on the request's first delta.
    positions: one for each of ``token_ids`` when logprobs were asked for.
    prompt_positions: one for each prompt token when asked for, None for the first; on the first delta.
    handoff: JSON by which a decode worker finds the KV cache; on the last delta of a prefill.
    timing: on the last delta, where the engine measures.
    """

    engine_id: EngineId
    token_ids: list[int]
    index: int = 0
    finish_reason: FinishReason | None = None
    is_last: bool = False
    stop_reason: int | str | None = None
    error: str | None = None
    cached_tokens: int = 0
    positions: list[Position] | None = None
    prompt_positions: list[Position | None] | None = None
    handoff: dict[str, Any] | None = None
    timing: EngineTiming | None = None

    def as_last(self, timing: EngineTiming | None) -> Delta:
        """The same, and the request's last."""
        return msgspec.structs.replace(self, is_last=True, timing=timing)

    def as_handoff(self, handoff: dict[str, Any], timing: EngineTiming | None) -> Delta:
        """The same, and a prefill's last: it has always ended by its length."""
        return msgspec.structs.replace(
            self,
            finish_reason=FinishReason.LENGTH,
            stop_reason=None,
            is_last=True,
            handoff=handoff,
            timing=timing,
        )


class ProcessorUse(Struct, frozen=True, gc=False):
    """What one logits processor cost in a step: tokens it was asked for, and the seconds that took."""

    name: str
    tokens: int
    seconds: float


class EngineStep(Struct, frozen=True, gc=False):
    """One iteration of the engine, all requests in it.

    started_s, ended_s: monotonic seconds. running: sequences in the batch of this step.
    used_blocks: KV blocks that belong to requests after it (0 where the engine has none).
    cached_blocks: KV blocks that belong to nobody and are kept for reuse.
    ranks: the KV cache of each rank, from engines with several; the two counts before are the sums.
    kv_events: what changed in the KV cache, in order.
    processors: the logits processors that were called since the step before.
    preempted: the requests that lost the memory of a sequence to others before this step, one entry for each
    sequence; it is computed again later.
    is_iteration: False for one that tells nothing but new counts, of an engine that tells them by and by.
    Nothing was computed for it: it is no sign of life, and no iteration to those who count these.
    """

    deltas: list[Delta]
    started_s: float
    ended_s: float
    running: int = 0
    used_blocks: int = 0
    cached_blocks: int = 0
    ranks: tuple[RankBlocks, ...] = ()
    kv_events: tuple[KvEvent, ...] = ()
    processors: tuple[ProcessorUse, ...] = ()
    preempted: tuple[EngineId, ...] = ()
    is_iteration: bool = True

    def with_deltas(self, deltas: list[Delta]) -> EngineStep:
        """The same step saying something else."""
        return msgspec.structs.replace(self, deltas=deltas)
