"""An engine whose memory can be given back, and in which every call about it can go wrong."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING

from protocols.errors import MaintenanceFailed
from tests.doubles.engines import ScriptedEngine

if TYPE_CHECKING:
    from collections.abc import Callable

    from protocols.spec import GenerationSpec
    from protocols.steps import EngineId

MEMORIES = ("kv_cache", "model_weights", "draft_model_weights", "model")


class Fate(StrEnum):
    """What becomes of a call. HALF: so many memories are done when it fails. HANGS: cancelled or not."""

    WORKS = "works"
    FAILS = "fails"
    HALF = "half"
    RAISES = "raises"
    CANCELLED = "cancelled"
    WAITS = "waits"
    HANGS = "hangs"


class MoodyMaintenance:
    """A `protocols.maintenance.Maintenance` that fails who calls it twice at once, or with a live request."""

    memories = MEMORIES

    def __init__(self, has_requests: Callable[[], object]) -> None:
        self._has_requests = has_requests
        # Of every call but the first few, which have fates of their own.
        self.fate = Fate.WORKS
        self.fates: list[Fate] = []
        self.gone = set[str]()
        self.unsure = set[str]()
        self.calls: list[str] = []
        self.is_busy = False
        # Why nothing can be given back.
        self.refusal = ""
        # Set: hanging calls come back, those to come too.
        self.may_return = asyncio.Event()

    @property
    def asleep(self) -> frozenset[str]:
        return frozenset(self.gone | self.unsure)

    def check(self, memories: tuple[str, ...]) -> None:
        unknown = [memory for memory in memories if memory not in MEMORIES]
        if self.refusal or unknown:
            raise MaintenanceFailed(self.refusal or f"{unknown[0]!r} is no memory of this engine")

    async def sleep(self, memories: tuple[str, ...]) -> None:
        self.check(memories)
        self.unsure.update(memories)
        await self._do("sleep", list(memories))
        self.unsure.difference_update(memories)

    async def wake(self) -> None:
        self.unsure.update(self.gone)
        await self._do("wake", sorted(self.unsure))
        self.unsure.clear()

    async def _do(self, what: str, memories: list[str]) -> None:
        assert not self.is_busy, "two calls at once"
        assert not self._has_requests(), "a call while a request is live"
        self.is_busy = True
        self.calls.append(what)
        try:
            await self._meet_fate(what, memories)
        finally:
            self.is_busy = False

    async def _meet_fate(self, what: str, memories: list[str]) -> None:
        match self.fates.pop(0) if self.fates else self.fate:
            case Fate.FAILS:
                raise MaintenanceFailed(f"{what}: no")
            case Fate.RAISES:
                raise RuntimeError("no")
            case Fate.CANCELLED:
                raise asyncio.CancelledError
            case Fate.HALF:
                self._change(what, memories[: len(memories) // 2])
                raise MaintenanceFailed(f"{what}: half way")
            case Fate.WAITS:
                await self.may_return.wait()
            case Fate.HANGS:
                await self._hang()
            case Fate.WORKS:
                await asyncio.sleep(0)
        self._change(what, memories)

    async def _hang(self) -> None:
        may_return = self.may_return
        while not may_return.is_set():
            try:
                await may_return.wait()
            except asyncio.CancelledError:
                continue

    def _change(self, what: str, memories: list[str]) -> None:
        assert not self._has_requests(), "memory changes while a request is live"
        if what == "sleep":
            self.gone.update(memories)
        else:
            self.gone.difference_update(memories)


class SleepyEngine(ScriptedEngine):
    """A scripted engine with such a maintenance: nothing may be asked of it while something is gone."""

    name = "sleepy"

    def __init__(self, max_num_seqs: int = 8) -> None:
        super().__init__(max_num_seqs)
        self.maintenance: MoodyMaintenance = MoodyMaintenance(lambda: self.live)

    def submit(self, engine_id: EngineId, spec: GenerationSpec) -> None:
        assert not self.maintenance.asleep, f"a request while {sorted(self.maintenance.asleep)} is gone"
        assert not self.maintenance.is_busy, "a request while the engine gives memory back or takes it"
        super().submit(engine_id, spec)
