"""How full the KV cache is, for the framework's own gauges: the last state, at most ten times a second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from dynamo.common.backend.publisher import ComponentSnapshot

from protocols.engine import EngineInfo
from protocols.steps import EngineStep
from service.telemetry.logs import get_logger

EVERY_S = 0.1


class KvSnapshots:
    """Loop only. One rank: a step says of all ranks together how many blocks are used.

    hit_rate: the cached share of all prompt tokens, None before the first.
    """

    def __init__(self, hit_rate: Callable[[], float | None]) -> None:
        self._hit_rate = hit_rate
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._publisher: Any = None
        self._total_blocks = 0
        self._used_blocks = 0
        self._last: ComponentSnapshot | None = None

    def open(self, loop: asyncio.AbstractEventLoop, info: EngineInfo) -> None:
        """The engine has started."""
        self._loop = loop
        self._total_blocks = info.total_blocks or 0

    def attached(self, publisher: Any) -> None:
        """The framework has gauges now."""
        self._publisher = publisher
        self._publish()

    def step_made(self, step: EngineStep) -> None:
        """Publish in a moment what is true then."""
        self._used_blocks = step.used_blocks
        if self._timer is None and self._publisher is not None and self._loop is not None:
            self._timer = self._loop.call_later(EVERY_S, self._publish)

    def close(self) -> None:
        """Nothing more is published."""
        self._publisher = None
        if self._timer is not None:
            self._timer.cancel()

    def _publish(self) -> None:
        self._timer = None
        snapshot = self._snapshot()
        if self._publisher is None or snapshot == self._last:
            return
        try:
            self._publisher.publish(snapshot.dp_rank, snapshot)
            self._last = snapshot
        except Exception as exc:
            error = type(exc).__name__
            get_logger("service.kv").warning("kv.snapshot_failed", error=error, once_per="snapshot")

    def _snapshot(self) -> ComponentSnapshot:
        used, total = self._used_blocks, self._total_blocks
        return ComponentSnapshot(
            kv_used_blocks=used,
            kv_total_blocks=total,
            gpu_cache_usage=used / total if total else 0.0,
            dp_rank=0,
            kv_cache_hit_rate=self._hit_rate(),
        )
