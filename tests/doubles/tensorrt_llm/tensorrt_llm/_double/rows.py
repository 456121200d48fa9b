"""Statistics of one rank: one row for each step of its engine."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from protocols.steps import EngineStep
from tensorrt_llm._double.iterations import Row
from tensorrt_llm._double.wire import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What a rank knows after a step. Requests that have said nothing yet are in their context phase.

    queued: of all ranks, and told by the first one.
    """

    active: int
    queued: int
    completed: int
    context_requests: int
    context_tokens: int
    cached_tokens: int
    prompt_tokens: int


class RowLog:
    """Event loop only."""

    def __init__(self, rank: int, settings: Settings, total_blocks: int) -> None:
        length = settings.stats_length
        self.rows: deque[Row] = deque(maxlen=None if length < 0 else max(length, 1))
        if rank == 0:
            self.rows.extend(settings.script.dictated_rows)
        self._is_on = settings.has_stats
        self._settings = settings
        self._rank = rank
        self._total_blocks = total_blocks
        self._steps = 0

    def on_step(self, step: EngineStep, counts: Counts, requests: list[Row]) -> None:
        """requests: one entry each, for those who want them."""
        self._steps += 1
        if not self._is_on:
            return
        settings = self._settings
        row: Row = {
            "iter": self._steps,
            "iterLatencyMS": (step.ended_s - step.started_s) * 1000,
            "numActiveRequests": counts.active,
            "numQueuedRequests": counts.queued,
            "numCompletedRequests": counts.completed,
            "maxNumActiveRequests": settings.max_batch_size,
            "gpuMemUsage": 0,
            "cpuMemUsage": 0,
            "pinnedMemUsage": 0,
            "maxBatchSizeStatic": settings.max_batch_size,
            "maxBatchSizeRuntime": settings.max_batch_size,
            "maxNumTokensRuntime": settings.max_num_tokens,
            "attentionDpRank": self._rank,
            "kvCacheStats": self._cache(step, counts),
            "inflightBatchingStats": _batching(step, counts),
        }
        if settings.has_request_stats:
            row["requestStats"] = requests
        self.rows.append(row)

    def _cache(self, step: EngineStep, counts: Counts) -> Row:
        size = self._settings.block_tokens
        used = min(step.used_blocks, self._total_blocks)
        reused = counts.cached_tokens // size
        missed = max(counts.prompt_tokens // size - reused, 0)
        return {
            "maxNumBlocks": self._total_blocks,
            "freeNumBlocks": self._total_blocks - used,
            "usedNumBlocks": used,
            "tokensPerBlock": size,
            "reusedBlocks": reused,
            "missedBlocks": missed,
            "cacheHitRate": reused / (reused + missed) if reused + missed else 0.0,
        }


def _batching(step: EngineStep, counts: Counts) -> Row:
    generating = max(step.running - counts.context_requests, 0)
    return {
        "numScheduledRequests": step.running,
        "numContextRequests": counts.context_requests,
        "numGenRequests": generating,
        "numPausedRequests": 0,
        "numCtxTokens": counts.context_tokens,
        "avgNumDecodedTokensPerIter": 1.0 if generating else 0.0,
        "numCtxKvTokens": 0,
        "numGenKvTokens": 0,
        "numQueuedContextRequests": counts.queued,
        "numQueuedCtxTokens": 0,
        "numQueuedGenRequests": 0,
        "numQueuedGenKvTokens": 0,
        "numPausedKvTokens": 0,
    }
