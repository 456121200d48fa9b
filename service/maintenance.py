"""Sleep and wake of a worker: out of service first, then without its memory, and all the way back.

A worker serves when nobody wishes otherwise: neither who drained it by hand, nor who sent it to sleep. The
one wish ends with `resume`, the other with `wake`, and neither undoes the other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from enum import StrEnum
from typing import TYPE_CHECKING

from protocols.errors import InternalError, InvalidRequest, MaintenanceFailed
from protocols.maintenance import Maintenance
from protocols.telemetry import DrainReport, WorkerState
from service.maintenance_call import EngineCall
from service.notify.events import Resting
from service.telemetry.logs import get_logger

if TYPE_CHECKING:
    from actors.drain import DrainLadder
    from actors.graph import Graph
    from service.engine import ActorEngine

# After the last request has ended the engine confirms an abort within a step: this is generous.
SETTLE_S = 2.0
# How often to look meanwhile.
_LOOK_S = 0.01


class Rest(StrEnum):
    """Whether the engine has its memory. HALF_ASLEEP: a change failed; `wake` or another `sleep` ends it."""

    AWAKE = "awake"
    PAUSING = "pausing"
    ASLEEP = "asleep"
    WAKING = "waking"
    HALF_ASLEEP = "half_asleep"


_NEXT: dict[Rest, frozenset[Rest]] = {
    Rest.AWAKE: frozenset({Rest.PAUSING}),
    Rest.PAUSING: frozenset({Rest.ASLEEP, Rest.HALF_ASLEEP}),
    Rest.ASLEEP: frozenset({Rest.PAUSING, Rest.WAKING}),
    Rest.HALF_ASLEEP: frozenset({Rest.PAUSING, Rest.WAKING}),
    Rest.WAKING: frozenset({Rest.AWAKE, Rest.HALF_ASLEEP}),
}
_CHANGING = frozenset({Rest.PAUSING, Rest.WAKING})


class SleepCoordinator:
    """One state machine. Event loop; a change that has begun is made, be it that its caller hangs up."""

    def __init__(self, worker: ActorEngine) -> None:
        self._worker = worker
        self._call = EngineCall()
        self._change: asyncio.Task[None] | None = None
        self._is_drained_by_hand = False
        self._log = get_logger("service.maintenance")
        self.state = Rest.AWAKE

    @property
    def is_awake(self) -> bool:
        """Whether all of the memory is there, and nobody is about to give it back."""
        return self.state is Rest.AWAKE

    @property
    def asleep(self) -> list[str]:
        """What is not there, or may not be, in the order of the alphabet."""
        maintenance = self._worker.engine.maintenance
        return [] if maintenance is None else sorted(maintenance.asleep)

    def vouches(self) -> bool:
        """Whether health probes are answered without the engine: the worker sleeps, or was drained by hand.

        The door is shut for them as for anybody, and whoever is out of service with the framework's canary on
        would be killed for that.
        """
        graph = self._worker.graph
        is_drained = graph is not None and graph.drain.state is WorkerState.DRAINED
        return (is_drained or not self.is_awake) and not self._worker.is_stopping

    def note_drain(self, *, is_wished: bool) -> None:
        """Somebody drains by hand, or takes that back: whether the worker serves when it wakes."""
        self._is_drained_by_hand = is_wished

    async def sleep(self, memories: tuple[str, ...], ladder: DrainLadder) -> None:
        """Drain as by hand, then give this memory back. What sleeps already, sleeps.

        Raises InvalidRequest or MaintenanceFailed before anything has happened, MaintenanceFailed with the
        state HALF_ASLEEP after that.
        """
        maintenance, graph = self._ready("sleep")
        memories = tuple(dict.fromkeys(memories))
        maintenance.check(memories)
        if self.state is Rest.ASLEEP and maintenance.asleep.issuperset(memories):
            return
        self._enter(Rest.PAUSING)
        await self._make(self._pause(maintenance, graph, memories, ladder))

    async def wake(self) -> None:
        """Take all memory back and serve again, unless somebody drained the worker by hand.

        Raises InvalidRequest, and MaintenanceFailed with the state HALF_ASLEEP. Awake it does nothing.
        """
        maintenance, graph = self._ready("wake")
        if self.state is Rest.AWAKE:
            return
        self._enter(Rest.WAKING)
        await self._make(self._rise(maintenance, graph))

    def _ready(self, what: str) -> tuple[Maintenance, Graph]:
        """Whom it is about. Raises InvalidRequest while that makes no sense."""
        worker, maintenance = self._worker, self._worker.engine.maintenance
        if maintenance is None:
            allowed = "an engine that can give its memory back, which here is trtllm"
            raise InvalidRequest(what, f"engine {worker.engine.name}", allowed)
        if worker.is_stopping:
            raise InvalidRequest(what, "while stopping", "a worker that is not on its way out")
        if worker.graph is None:
            raise InvalidRequest(what, "while starting", "a worker that has started")
        if self.state in _CHANGING:
            raise InvalidRequest(what, f"while {self.state}", "a worker that is awake or asleep (see status)")
        return maintenance, worker.graph

    async def _make(self, change: Coroutine[None, None, None]) -> None:
        """In a task of its own: the caller's is the framework's, and may end at any time."""
        self._change = task = asyncio.create_task(change, name="maintenance")
        task.add_done_callback(_hear)
        await asyncio.wait({task})
        task.result()

    async def _pause(
        self, maintenance: Maintenance, graph: Graph, memories: tuple[str, ...], ladder: DrainLadder
    ) -> None:
        try:
            await self._get_empty(graph, ladder)
            await self._call.make("sleep", maintenance.sleep(memories))
        except BaseException as exc:
            self._fail(exc)
            raise
        self._enter(Rest.ASLEEP)

    async def _rise(self, maintenance: Maintenance, graph: Graph) -> None:
        try:
            await self._call.make("wake", maintenance.wake())
            if maintenance.asleep:
                raise MaintenanceFailed(f"wake: {', '.join(self.asleep)} did not come back")
        except BaseException as exc:
            self._fail(exc)
            raise
        self._enter(Rest.AWAKE)
        # Much may have happened meanwhile: a signal, the engine's death, a drain by hand.
        is_wished_away = self._is_drained_by_hand or self._worker.is_stopping
        if not is_wished_away and graph.drain.resume():
            await self._worker.discovery.join()

    async def _get_empty(self, graph: Graph, ladder: DrainLadder) -> None:
        """Until the engine has nothing of ours: no request, no health probe, no cache to be fetched."""
        worker = self._worker
        drained: tuple[DrainReport | None, bool] = await asyncio.gather(
            worker.drain(ladder), worker.discovery.stay_out()
        )
        if drained[0] is None:
            raise MaintenanceFailed("sleep: the worker broke while it drained")
        # Whoever comes after this one is refused at the door.
        newest = graph.ledger.last_id
        until_s = max(ladder.end_at_s, time.monotonic() + SETTLE_S)
        # Nobody tells when that is.
        while not worker.is_stopping and not _is_free(worker, graph, newest):
            if time.monotonic() >= until_s:
                raise MaintenanceFailed("sleep: the engine has not let go of everything")
            await asyncio.sleep(_LOOK_S)
        if worker.is_stopping:
            raise MaintenanceFailed("sleep: the worker is stopping")

    def _fail(self, why: BaseException) -> None:
        self._enter(Rest.HALF_ASLEEP)
        said = str(why) if isinstance(why, MaintenanceFailed) else type(why).__name__
        self._log.warning("memory.failed", error=said, asleep=", ".join(self.asleep))

    def _enter(self, state: Rest) -> None:
        if state not in _NEXT[self.state]:
            raise InternalError(f"memory: {self.state.value} -> {state.value}")
        self._log.info("memory.state", state=state.value, before=self.state.value)
        self._worker.notifier.tell(Resting(state.value, is_awake=state is Rest.AWAKE))
        self.state = state


def _is_free(worker: ActorEngine, graph: Graph, newest: int) -> bool:
    """Whether nobody who was let in is there any more, and the engine holds nothing."""
    is_gone = all(ticket.engine_id > newest for ticket in graph.ledger.live())
    return is_gone and graph.executor.is_idle and not worker.pending_transfers


def _hear(task: asyncio.Task[None]) -> None:
    """Of a change whose caller has hung up nobody asks how it ended; the log has it."""
    if not task.cancelled():
        task.exception()
