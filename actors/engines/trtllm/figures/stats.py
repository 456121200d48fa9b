"""What TensorRT-LLM's statistics say of the engine now: the last word of every rank, in one frozen state.

With attention DP each rank tells of itself, in rows that come interleaved, apart, or not at all for a while.
So what each rank told last is kept, and every state is of all of them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from actors.engines.trtllm.figures.stats_rows import Row, count_of, part_of, rank_of, row_of, share_of
from protocols.steps import RankBlocks

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineState:
    """The engine as it was when its ranks spoke last. Requests are in TensorRT-LLM's own metrics.

    ranks: KV blocks of those that have told of them, in order. iterations_seen: rows so far, a number that
    only rises; it stands still when the engine does.
    """

    ranks: tuple[RankBlocks, ...] = ()
    iterations_seen: int = 0

    @property
    def used_blocks(self) -> int:
        """Of all ranks."""
        return sum(rank.used for rank in self.ranks)


class StatsReader:
    """One for each LLM; belongs to the thread that polls.

    ranks: attention-DP ranks. malformed: rows that were none, or of a rank that does not exist.
    """

    def __init__(self, ranks: int = 1) -> None:
        self._blocks: list[RankBlocks | None] = [None] * ranks
        self._seen = 0
        self.malformed = 0

    def read(self, rows: Iterable[object]) -> EngineState | None:
        """The state after these rows, oldest first; None when there was none among them. Never raises."""
        seen_before = self._seen
        for each in rows:
            row = row_of(each)
            rank = None if row is None else rank_of(row, len(self._blocks))
            if row is None or rank is None:
                self._complain()
                continue
            # What a row does not tell is as it was.
            self._blocks[rank] = _blocks_of(row, rank) or self._blocks[rank]
            self._seen += 1
        if self._seen == seen_before:
            return None
        told = tuple(blocks for blocks in self._blocks if blocks is not None)
        return EngineState(ranks=told, iterations_seen=self._seen)

    def _complain(self) -> None:
        """Once: an engine that tells what is no row does so every time."""
        self.malformed += 1
        if self.malformed == 1:
            _log.warning("TensorRT-LLM's statistics have rows that make no sense; they are left out")


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
