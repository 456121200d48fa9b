"""How full the KV cache of each rank is, for the framework's own gauges, at most ten times a second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from dynamo.common.backend.publisher import ComponentSnapshot

from protocols.engine import EngineInfo
from protocols.steps import EngineStep, RankBlocks
from service.telemetry.logs import get_logger

EVERY_S = 0.1


class KvSnapshots:
    """Loop only. Of several ranks a step tells each one's blocks; of one its own counts do as well.

    hit_rate: the cached share of all prompt tokens, None before the first; for a rank without its own.
    """

    def __init__(self, hit_rate: Callable[[], float | None]) -> None:
        self._hit_rate = hit_rate
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._publisher: Any = None
        self._blocks: dict[int, RankBlocks] = {}
        self._last: dict[int, ComponentSnapshot] = {}
        self._rank_count = 0

    def open(self, loop: asyncio.AbstractEventLoop, info: EngineInfo) -> None:
        """The engine has started."""
        self._loop = loop
        self._rank_count = info.data_parallel_size
        for rank in range(self._rank_count):
            self._blocks[rank] = RankBlocks(rank=rank, used=0, total=info.total_blocks or 0)

    def attached(self, publisher: Any) -> None:
        """The framework has gauges now."""
        self._publisher = publisher
        self._publish()

    def step_made(self, step: EngineStep) -> None:
        """Publish in a moment what is true then."""
        if step.ranks:
            self._note(step.ranks)
        elif self._rank_count == 1:
            self._blocks[0] = RankBlocks(rank=0, used=step.used_blocks, total=self._blocks[0].total)
        if self._timer is None and self._publisher is not None and self._loop is not None:
            self._timer = self._loop.call_later(EVERY_S, self._publish)

    def close(self) -> None:
        """Nothing more is published."""
        self._publisher = None
        if self._timer is not None:
            self._timer.cancel()

    def _note(self, ranks: tuple[RankBlocks, ...]) -> None:
        """The framework takes any rank, and would have a gauge for it for ever."""
        for blocks in ranks:
            if 0 <= blocks.rank < self._rank_count:
                self._blocks[blocks.rank] = blocks
            else:
                get_logger("service.kv").warning("kv.unknown_rank", rank=blocks.rank, once_per="rank")

    def _publish(self) -> None:
        self._timer = None
        for rank, blocks in sorted(self._blocks.items()):
            snapshot = self._snapshot(blocks)
            if self._publisher is None or snapshot == self._last.get(rank):
                continue
            try:
                self._publisher.publish(rank, snapshot)
                self._last[rank] = snapshot
            except Exception as exc:
                error = type(exc).__name__
                get_logger("service.kv").warning("kv.snapshot_failed", error=error, once_per="snapshot")

    def _snapshot(self, blocks: RankBlocks) -> ComponentSnapshot:
        used, total = blocks.used, blocks.total
        return ComponentSnapshot(
            kv_used_blocks=used,
            kv_total_blocks=total,
            gpu_cache_usage=used / total if total else 0.0,
            dp_rank=blocks.rank,
            kv_cache_hit_rate=self._hit_rate() if blocks.hit_rate is None else blocks.hit_rate,
        )
