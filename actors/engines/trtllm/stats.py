"""What TensorRT-LLM's statistics say of the engine now: the last word of every rank, in one frozen state.

With attention DP each rank tells of itself, in rows that come interleaved, apart, or not at all for a while.
So what each rank told last is kept, and every state is of all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from actors.engines.trtllm.stats_rows import Row, count_of, part_of, rank_of, row_of, share_of
from protocols.steps import RankBlocks


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineState:
    """The engine as it was when its ranks spoke last. Requests are sums over the ranks.

    ranks: KV blocks of those that have told of them, in order. running: requests with a place in the engine.
    queued: requests that wait for one; the first rank knows those of all. paused: running ones that had to
    give their blocks back. scheduled: requests of the last iteration. iterations: number of the last one, by
    rank; None before the first. iterations_seen: rows so far, a number that only rises; it stands still when
    the engine does.
    """

    ranks: tuple[RankBlocks, ...] = ()
    running: int = 0
    queued: int = 0
    paused: int = 0
    scheduled: int = 0
    iterations: tuple[int | None, ...] = ()
    iterations_seen: int = 0

    @property
    def used_blocks(self) -> int:
        """Of all ranks."""
        return sum(rank.used for rank in self.ranks)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RankState:
    blocks: RankBlocks | None = None
    running: int = 0
    queued: int = 0
    paused: int = 0
    scheduled: int = 0
    iteration: int | None = None


class StatsReader:
    """One for each LLM; belongs to the thread that polls.

    ranks: attention-DP ranks. malformed: rows that were none, or of a rank that does not exist.
    """

    def __init__(self, ranks: int = 1) -> None:
        self._ranks = [_RankState()] * ranks
        self._seen = 0
        self.malformed = 0

    def read(self, rows: Iterable[object]) -> EngineState | None:
        """The state after these rows, oldest first; None when there was none among them. Never raises."""
        seen_before = self._seen
        for each in rows:
            row = row_of(each)
            rank = None if row is None else rank_of(row, len(self._ranks))
            if row is None or rank is None:
                self.malformed += 1
                continue
            self._ranks[rank] = _after(self._ranks[rank], row, rank)
            self._seen += 1
        return self._state() if self._seen > seen_before else None

    def _state(self) -> EngineState:
        ranks = self._ranks
        return EngineState(
            ranks=tuple(rank.blocks for rank in ranks if rank.blocks is not None),
            running=sum(rank.running for rank in ranks),
            queued=ranks[0].queued,
            paused=sum(rank.paused for rank in ranks),
            scheduled=sum(rank.scheduled for rank in ranks),
            iterations=tuple(rank.iteration for rank in ranks),
            iterations_seen=self._seen,
        )


def _after(before: _RankState, row: Row, rank: int) -> _RankState:
    """What a row does not tell is as it was."""
    batch = part_of(row, "inflightBatchingStats")
    return _RankState(
        blocks=_blocks_of(row, rank) or before.blocks,
        running=_or(count_of(row, "numActiveRequests"), before.running),
        queued=_or(count_of(row, "numQueuedRequests"), before.queued),
        paused=_or(count_of(batch, "numPausedRequests"), before.paused),
        scheduled=_or(count_of(batch, "numScheduledRequests"), before.scheduled),
        iteration=before.iteration if (number := count_of(row, "iter")) is None else number,
    )


def _or(told: int | None, before: int) -> int:
    return before if told is None else told


def _blocks_of(row: Row, rank: int) -> RankBlocks | None:
    cache = part_of(row, "kvCacheStats")
    used, total = count_of(cache, "usedNumBlocks"), count_of(cache, "maxNumBlocks")
    if used is None or total is None:
        return None
    return RankBlocks(rank=rank, used=used, total=total, hit_rate=_hit_rate_of(cache))


def _hit_rate_of(cache: Row) -> float | None:
    """Since the start. The engine says 0 before the first block was looked up; that is not known."""
    looked_up = [count_of(cache, "reusedBlocks"), count_of(cache, "missedBlocks")]
    return None if looked_up == [0, 0] else share_of(cache, "cacheHitRate")
