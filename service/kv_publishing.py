"""What lies in the engine's KV cache, told to the framework for its routers and its gauges.

Only for engines with a paged cache, and only when the operator asked for it. Nothing that goes wrong here
reaches the graph.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Protocol

from dynamo.common.backend.publisher import KvEventSource, PushSource

from protocols.engine import EngineInfo, Figure
from protocols.steps import EngineStep
from service.kv_index import KvIndex
from service.kv_rank import Publisher, RankPublisher
from service.kv_snapshots import KvSnapshots
from service.telemetry.logs import get_logger


class KvCounts(Protocol):
    """Who counts events, and knows how much of the prompts was found."""

    @property
    def cache_hit_rate(self) -> float | None:
        """Cached share of all prompt tokens; None before the first."""
        ...

    def kv_events(self, result: str, count: int) -> None:
        """result: one of `service.telemetry.metrics.KV_RESULTS`."""
        ...


class KvPublishing:
    """Implements `protocols.kv_listener.KvListener`. Loop only, but where said.

    untold: figures that the engine's steps do not tell. Without the blocks there are no gauges.
    """

    def __init__(
        self,
        counts: KvCounts,
        clock: Callable[[], float] = time.monotonic,
        untold: Collection[Figure] = (),
    ) -> None:
        self._has_gauges = Figure.USED_BLOCKS not in untold
        self._counts = counts
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ranks: list[RankPublisher] = []
        self._snapshots = KvSnapshots(lambda: counts.cache_hit_rate)
        self._is_closed = False

    def open(self, loop: asyncio.AbstractEventLoop, info: EngineInfo) -> None:
        """The engine has started. One without a paged cache has nothing to tell."""
        if info.block_tokens is None:
            get_logger("service.kv").warning(
                "kv.nothing_to_publish", reason="the engine has no paged KV cache"
            )
            return
        self._loop = loop
        indexes = [KvIndex(info.block_tokens, info.most_known_blocks) for _ in range(info.data_parallel_size)]
        self._ranks = [
            RankPublisher(index, self._counts.kv_events, self._clock, number)
            for number, index in enumerate(indexes)
        ]
        self._snapshots.open(loop, info)

    def sources(self) -> list[KvEventSource]:
        """One for each rank. The framework calls ``on_ready`` in a thread without a loop."""
        return [
            PushSource(on_ready=partial(self._tell_loop, rank.opened), dp_rank=number)
            for number, rank in enumerate(self._ranks)
        ]

    def snapshot_ranks(self) -> list[int]:
        """Ranks with gauges: all, or none where the engine does not tell its blocks. Any thread."""
        return list(range(len(self._ranks))) if self._has_gauges else []

    def attach_snapshots(self, publisher: Any) -> None:
        """Any thread."""
        self._tell_loop(self._snapshots.attached, publisher)

    def step_made(self, step: EngineStep) -> None:
        """Events go out in order, in one call a rank."""
        if self._is_closed:
            return
        self._snapshots.step_made(step)
        try:
            for event in step.kv_events:
                if 0 <= event.rank < len(self._ranks):
                    self._ranks[event.rank].note(event)
                else:
                    self._counts.kv_events("malformed", 1)
            for rank in self._ranks:
                if step.kv_events or rank.is_behind:
                    rank.publish()
        except Exception as exc:
            # An engine may put anything into an event; requests must not suffer by it.
            self._counts.kv_events("malformed", 1)
            get_logger("service.kv").warning("kv.events_lost", error=type(exc).__name__, once_per="events")

    def forgotten(self) -> None:
        """The worker is back in discovery: routers that had dropped it hear of every block again."""
        if not self._is_closed:
            for rank in self._ranks:
                rank.forgotten()

    def close(self) -> None:
        """Nothing more is published."""
        self._is_closed = True
        self._snapshots.close()

    def _tell_loop(self, callback: Callable[[Publisher], None], publisher: Publisher) -> None:
        """From any thread: call it in the loop, unless that is over."""

        def call() -> None:
            if not self._is_closed:
                callback(publisher)

        try:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(call)
        except RuntimeError:
            # The loop is closed: the worker has stopped.
            return
