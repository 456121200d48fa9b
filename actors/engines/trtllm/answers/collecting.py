"""All results of one turn of the event loop become one step."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from protocols.errors import EngineDead
from protocols.steps import Delta, EngineStep, KvEvent, ProcessorUse, RankBlocks


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheState:
    """The KV cache as the engine's last statistics had it, in blocks over all ranks."""

    used: int = 0
    cached: int = 0
    ranks: tuple[RankBlocks, ...] = ()


class StepCollector:
    """Event loop only. What is not taken yet grows into one step: requests have reserved room for it."""

    def __init__(self) -> None:
        self._deltas: list[Delta] = []
        self._kv_events: list[KvEvent] = []
        self._uses: list[ProcessorUse] = []
        self._sleeper: asyncio.Future[None] | None = None
        self._failure: BaseException | None = None
        self._is_closed = False
        self._began_s = time.monotonic()
        self._state = CacheState()
        self._has_new_state = False

    def begin(self) -> None:
        """The engine gets something to do after a rest: its next step begins now, and not with the rest."""
        self._began_s = time.monotonic()

    def say(self, deltas: list[Delta]) -> None:
        """New tokens and ends, in order."""
        if deltas:
            self._deltas += deltas
            self._wake()

    def tell_cache(self, events: list[KvEvent]) -> None:
        """What changed in the KV cache, in order."""
        if events:
            self._kv_events += events
            self._wake()

    def tell_state(self, state: CacheState) -> None:
        """What the cache holds. Told with the next step; what differs from before is a reason for one."""
        if state != self._state:
            self._state = state
            self._has_new_state = True
            self._wake()

    def tell_uses(self, uses: tuple[ProcessorUse, ...]) -> None:
        """What logits processors cost; told with the next step, and no reason for one."""
        self._uses += uses

    def fail(self, cause: BaseException) -> None:
        """The engine is dead. What was said before is still given out. The first cause is kept."""
        if self._failure is None:
            self._failure = cause
        self._wake()

    def close(self) -> None:
        """Nothing more will be said."""
        self._is_closed = True
        self._wake()

    async def next_step(self, running: Callable[[], int]) -> EngineStep:
        """As `protocols.engine.Engine.next_step`. running: sequences in the engine."""
        await asyncio.sleep(0)
        while not (self._deltas or self._kv_events):
            if self._failure is not None:
                raise EngineDead("TensorRT-LLM will not step again") from self._failure
            if self._is_closed:
                raise EngineDead("the engine was stopped")
            if self._has_new_state:
                break
            sleeper = self._sleeper = asyncio.get_running_loop().create_future()
            await sleeper
        return self._take(running())

    def _take(self, running: int) -> EngineStep:
        now_s = time.monotonic()
        is_iteration = bool(self._deltas or self._kv_events)
        step = EngineStep(
            self._deltas,
            self._began_s if is_iteration else now_s,
            now_s,
            running=running,
            used_blocks=self._state.used,
            cached_blocks=self._state.cached,
            ranks=self._state.ranks,
            kv_events=tuple(self._kv_events),
            processors=tuple(self._uses),
            is_iteration=is_iteration,
        )
        self._has_new_state = False
        self._deltas, self._kv_events, self._uses = [], [], []
        if is_iteration:
            self._began_s = now_s
        return step

    def _wake(self) -> None:
        """Its caller goes on in the next turn: whatever comes in this one is part of the same step."""
        sleeper, self._sleeper = self._sleeper, None
        if sleeper is not None and not sleeper.done():
            sleeper.set_result(None)
