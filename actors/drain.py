"""Drain coordinator: lets what is live finish, moves or ends what cannot, and says when it is over.

The ladder, all times from one instant (the signal): the door closes; until ``move_at_s`` requests
just finish; then those a frontend can continue elsewhere are ended with EngineShutdown, in time to
be moved; until ``end_at_s`` the others run on; then they are interrupted, and counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from actors.admission import Admission
from actors.ledger import Ledger
from protocols.errors import InternalError
from protocols.messages import EndLive, MonitorControl
from protocols.telemetry import DrainReport, Outcome, Telemetry, WorkerState

# How often a drain says how many are left.
HEARTBEAT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainLadder:
    """Points in time on the graph's clock, seconds. ``started_s`` is when the stop was asked for."""

    started_s: float
    move_at_s: float
    end_at_s: float


class Rung(Enum):
    """Where a drain is: which step of the ladder comes next."""

    FINISHING = "finishing"
    MOVED = "moved"
    ENDED = "ended"


_NEXT_RUNG = {Rung.FINISHING: Rung.MOVED, Rung.MOVED: Rung.ENDED}
_NEXT_STATE: dict[WorkerState, frozenset[WorkerState]] = {
    WorkerState.SERVING: frozenset({WorkerState.DRAINING}),
    WorkerState.DRAINING: frozenset({WorkerState.DRAINED}),
    WorkerState.DRAINED: frozenset({WorkerState.SERVING}),
}


class DrainCoordinator:
    """One state machine; any task may ask for a drain, and all who ask get the same one."""

    def __init__(
        self,
        monitor: MemoryObjectSendStream[MonitorControl],
        ledger: Ledger,
        admission: Admission,
        clock: Callable[[], float],
        telemetry: Telemetry,
    ) -> None:
        self._monitor = monitor
        self._ledger = ledger
        self._admission = admission
        self._clock = clock
        self._telemetry = telemetry
        self._ladder: DrainLadder | None = None
        self._asked = anyio.Event()
        self._changed = anyio.Event()
        self._over = anyio.Event()
        # Set when the door closes: the last request of this drain, who was live, and the books until then.
        self._last_id = ledger.last_id
        self._live_at_start = 0
        self._completed_before = self._interrupted_before = self._moved_before = 0
        self.state = WorkerState.SERVING
        self.report: DrainReport | None = None
        ledger.watch(self._on_ledger_change)

    async def run(self) -> None:
        """One drain after another, for as long as the graph is open."""
        async with self._monitor:
            while True:
                await self._asked.wait()
                await self._drain()

    def begin(self, ladder: DrainLadder) -> None:
        """Close the door. While a drain is on, the sooner of both ladders holds, rung by rung.

        A worker that is drained already has nothing to drain until it is resumed.
        """
        if self.state is WorkerState.DRAINED:
            return
        if self._ladder is not None and self.state is WorkerState.DRAINING:
            ladder = _sooner(self._ladder, ladder)
        self._ladder = ladder
        if self.state is not WorkerState.DRAINING:
            self._close_door()
            self._over = anyio.Event()
        self._asked.set()
        self._poke()

    async def wait_over(self) -> DrainReport:
        """Until nobody is live. Call after `begin`."""
        await self._over.wait()
        if self.report is None:
            raise InternalError("a drain ended without a report")
        return self.report

    def resume(self) -> bool:
        """Open the door again after a finished drain. False while one is still on."""
        if self.state is WorkerState.DRAINING:
            return False
        if self.state is WorkerState.DRAINED:
            self._enter(WorkerState.SERVING)
            self._admission.open()
        return True

    def _close_door(self) -> None:
        self._admission.close()
        self._last_id = self._ledger.last_id
        self._live_at_start = self._ledger.live_count
        self._completed_before = self._completed()
        self._interrupted_before = self._ledger.outcomes[Outcome.INTERRUPTED]
        self._moved_before = self._ledger.moved
        self._enter(WorkerState.DRAINING)

    def _is_done(self) -> bool:
        """Whether everybody is gone who was here when the door closed; those refused since do not count."""
        oldest = self._ledger.oldest_live_id
        return oldest is None or oldest > self._last_id

    async def _drain(self) -> None:
        rung = Rung.FINISHING
        while not self._is_done():
            rung = await self._climb(rung)
            await self._wait_for_change(rung)
        self.report = report = self._report()
        self._asked = anyio.Event()
        self._enter(WorkerState.DRAINED)
        self._telemetry.drain_progress(0, self._left_s())
        self._telemetry.drain_ended(report)
        self._over.set()

    def _report(self) -> DrainReport:
        # Who came after the door had closed was refused, or left: neither of these.
        completed = self._completed() - self._completed_before
        interrupted = self._ledger.outcomes[Outcome.INTERRUPTED] - self._interrupted_before
        return DrainReport(
            live_at_start=self._live_at_start,
            completed=completed,
            ended_otherwise=self._live_at_start - completed - interrupted,
            moved=self._ledger.moved - self._moved_before,
            interrupted=interrupted,
            seconds=self._clock() - self._now_holding().started_s,
        )

    def _completed(self) -> int:
        """Requests so far that got all they asked for."""
        outcomes = self._ledger.outcomes
        return outcomes[Outcome.COMPLETED] + outcomes[Outcome.STOPPED_BY_FRONTEND]

    async def _climb(self, rung: Rung) -> Rung:
        """Take every rung whose time has come."""
        while rung in _NEXT_RUNG and self._clock() >= self._time_of(_NEXT_RUNG[rung]):
            rung = _NEXT_RUNG[rung]
            try:
                await self._monitor.send(EndLive(self._last_id, only_movable=rung is Rung.MOVED))
            except anyio.BrokenResourceError:
                # The monitor has died: the graph is about to be cancelled, and the cause is not ours.
                await anyio.sleep_forever()
        return rung

    async def _wait_for_change(self, rung: Rung) -> None:
        """Sleep until somebody ended, the ladder changed, the next rung or the next heartbeat."""
        self._telemetry.drain_progress(self._ledger.live_count, self._left_s())
        pause_s = HEARTBEAT_S
        if rung in _NEXT_RUNG:
            pause_s = min(pause_s, max(0.0, self._time_of(_NEXT_RUNG[rung]) - self._clock()))
        self._changed = anyio.Event()
        if not self._is_done():
            with anyio.move_on_after(pause_s):
                await self._changed.wait()

    def _time_of(self, rung: Rung) -> float:
        ladder = self._now_holding()
        return ladder.move_at_s if rung is Rung.MOVED else ladder.end_at_s

    def _left_s(self) -> float:
        return max(0.0, self._now_holding().end_at_s - self._clock())

    def _now_holding(self) -> DrainLadder:
        if self._ladder is None:
            raise InternalError("a drain runs without a ladder")
        return self._ladder

    def _enter(self, state: WorkerState) -> None:
        if state not in _NEXT_STATE[self.state]:
            raise InternalError(f"drain: {self.state.value} -> {state.value}")
        self.state = state
        self._telemetry.state_changed(state)

    def _on_ledger_change(self) -> None:
        if self.state is WorkerState.DRAINING and self._is_done():
            self._poke()

    def _poke(self) -> None:
        self._changed.set()


def _sooner(one: DrainLadder, other: DrainLadder) -> DrainLadder:
    return DrainLadder(
        started_s=min(one.started_s, other.started_s),
        move_at_s=min(one.move_at_s, other.move_at_s),
        end_at_s=min(one.end_at_s, other.end_at_s),
    )
