"""Rows of TensorRT-LLM's iteration statistics."""

from __future__ import annotations

from typing import Any


def stats_row(number: int = 1, *, rank: int | None = 0, **changes: Any) -> dict[str, Any]:
    """One iteration of one rank. ``part__key`` changes a part; None takes a key away."""
    row: dict[str, Any] = {
        "iter": number,
        "iterLatencyMS": 10.0,
        "numActiveRequests": 3,
        "numQueuedRequests": 5,
        "numCompletedRequests": 1,
        "maxNumActiveRequests": 8,
        "gpuMemUsage": 1000,
        "attentionDpRank": rank,
        "kvCacheStats": {
            "maxNumBlocks": 100,
            "freeNumBlocks": 60,
            "usedNumBlocks": 40,
            "tokensPerBlock": 32,
            "reusedBlocks": 10,
            "missedBlocks": 30,
            "cacheHitRate": 0.25,
        },
        "inflightBatchingStats": {
            "numScheduledRequests": 2,
            "numContextRequests": 1,
            "numGenRequests": 1,
            "numPausedRequests": 1,
            "numCtxTokens": 64,
        },
    }
    for key, value in {**changes, "attentionDpRank": rank}.items():
        *parts, name = key.split("__")
        target = row[parts[0]] if parts else row
        if value is None:
            target.pop(name, None)
        else:
            target[name] = value
    return row
