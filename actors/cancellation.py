"""Cancellation monitor: ends requests early, each for its reason and by the phase it is in.

| phase | what happens |
|---|---|
| resolving | ends here; resolver and executor find no such request and drop it |
| waiting | ends here; the executor takes it out of the waiting room; the engine never hears of it |
| prefill, decode | ends here; the executor aborts it once; its slot is free when the engine confirms |
| finished | nothing: the request has its outcome |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from actors.ledger import Ledger
from actors.mailbox import receive_all
from actors.outbox import Terminal
from actors.settings import GraphSettings
from actors.ticket import Ticket
from protocols.bounds import Bound
from protocols.errors import DeadlineExceeded, EngineShutdown, InternalError, ReaderStalled
from protocols.messages import Cancel, CancelContext, EndLive, ExecutorControl, MonitorControl, ReaderGone
from protocols.steps import FinishReason
from protocols.telemetry import CancelReason, Outcome, Phase, Telemetry

# One sweep looks at every request that lives or is still read: how late a deadline or a stall may be noticed.
SWEEP_S = 0.1
_AT_EXECUTOR = frozenset({Phase.WAITING, Phase.PREFILL, Phase.DECODE})


class CancellationMonitor:
    """facade, sweeper, drain -> **monitor** -> executor."""

    def __init__(
        self,
        control: MemoryObjectReceiveStream[MonitorControl],
        executor: MemoryObjectSendStream[ExecutorControl],
        ledger: Ledger,
        settings: GraphSettings,
        clock: Callable[[], float],
        telemetry: Telemetry,
    ) -> None:
        self._control = control
        self._executor = executor
        self._ledger = ledger
        self._settings = settings
        self._clock = clock
        self._telemetry = telemetry
        self._anyone_there = anyio.Event()
        ledger.watch(self._on_ledger_change)

    async def run(self) -> None:
        """Until its control lane is closed."""
        async with self._control, self._executor, anyio.create_task_group() as loops:
            loops.start_soon(self._sweep)
            async for message in receive_all(self._control):
                self.on_control(message)
            loops.cancel_scope.cancel()

    def on_control(self, message: MonitorControl) -> None:
        """Somebody wishes one or several requests to end."""
        match message:
            case CancelContext(context_id=context_id):
                for ticket in self._ledger.of_context(context_id):
                    if ticket.caller.is_stopped():
                        self.end_early(ticket, CancelReason.CLIENT)
            case ReaderGone(engine_id=engine_id):
                ticket_or_none = self._ledger.find(engine_id)
                if ticket_or_none is not None:
                    self.end_early(ticket_or_none, CancelReason.CLIENT)
            case EndLive(last_id=last_id, only_movable=only_movable):
                for ticket in self._ledger.live():
                    if ticket.engine_id <= last_id and (ticket.is_movable or not only_movable):
                        self.end_early(ticket, CancelReason.DRAIN)
            case _:
                assert_never(message)

    def on_sweep(self) -> None:
        """End what is past its deadline, and what nobody reads; give up those who do not read their end."""
        now_s = self._clock()
        for ticket in self._ledger.unread():
            if self._is_stalled(ticket, now_s):
                self._abandon(ticket)
        for ticket in self._ledger.live():
            if ticket.deadline_s is not None and now_s >= ticket.deadline_s:
                ticket.times.wish_end(ticket.deadline_s)
                self.end_early(ticket, CancelReason.DEADLINE)
            elif self._is_stalled(ticket, now_s):
                self.end_early(ticket, CancelReason.STALL)

    def end_early(self, ticket: Ticket, reason: CancelReason) -> None:
        """Write the reason, the outcome and the last word; then let the executor clean up."""
        if ticket.is_ended:
            return
        phase = ticket.phase
        self._ledger.note_cancel(ticket, reason)
        outcome, terminal = self._verdict(ticket, reason)
        has_no_reader = reason in (CancelReason.CLIENT, CancelReason.STALL)
        self._ledger.end(ticket, outcome, terminal, drop_waiting=has_no_reader)
        if reason is CancelReason.STALL:
            # It has had its time.
            self._ledger.abandon(ticket, self._stalled())
        if phase in _AT_EXECUTOR:
            self._tell_executor(Cancel(ticket.engine_id, reason))

    def _verdict(self, ticket: Ticket, reason: CancelReason) -> tuple[Outcome, Terminal]:
        match reason:
            case CancelReason.CLIENT:
                return _client_outcome(ticket), Terminal(
                    finish_reason=FinishReason.CANCELLED,
                    prompt_tokens=ticket.prompt_tokens,
                    cached_tokens=ticket.cached_tokens,
                )
            case CancelReason.DEADLINE:
                return Outcome.DEADLINE, Terminal(error=DeadlineExceeded(ticket.budget_s or 0.0))
            case CancelReason.STALL:
                return Outcome.STALLED, Terminal(error=self._stalled())
            case CancelReason.DRAIN:
                return Outcome.INTERRUPTED, Terminal(error=EngineShutdown("this worker is shutting down"))
            case CancelReason.ENGINE_DEAD:
                return Outcome.FAILED, Terminal(error=EngineShutdown("the engine of this worker is dead"))
            case _:
                assert_never(reason)

    def _is_stalled(self, ticket: Ticket, now_s: float) -> bool:
        since_s = ticket.outbox.waiting_since_s
        return since_s is not None and now_s - since_s >= self._settings.stall_timeout_s

    def _stalled(self) -> ReaderStalled:
        return ReaderStalled(self._settings.stall_timeout_s)

    def _abandon(self, ticket: Ticket) -> None:
        """Its request has ended; what it leaves lying is dropped. One that has gone is nobody's bound."""
        if not (ticket.outbox.is_drained or ticket.caller.is_stopped()):
            self._telemetry.bound_reached(Bound.UNREAD_ANSWERS)
        self._ledger.abandon(ticket, self._stalled())

    def _tell_executor(self, cancel: Cancel) -> None:
        try:
            self._executor.send_nowait(cancel)
        except anyio.WouldBlock:
            raise InternalError(
                "the executor's control lane is full; it is sized so that it cannot be"
            ) from None
        except anyio.BrokenResourceError:
            # The executor is gone: the graph is closing and the engine stops with everything in it.
            return

    async def _sweep(self) -> None:
        """Every 0.1 s while anybody lives or is read; asleep otherwise."""
        while True:
            await self._anyone_there.wait()
            await anyio.sleep(SWEEP_S)
            self.on_sweep()
            if self._ledger.is_empty and self._ledger.is_read:
                self._anyone_there = anyio.Event()

    def _on_ledger_change(self) -> None:
        if not (self._ledger.is_empty and self._ledger.is_read):
            self._anyone_there.set()


def _client_outcome(ticket: Ticket) -> Outcome:
    """A frontend that met a stop string aborts just as a client that leaves does.

    With stop strings in the request and something delivered, it was the frontend.
    """
    stopped = ticket.has_stop_strings and ticket.outbox.taken_tokens > 0
    return Outcome.STOPPED_BY_FRONTEND if stopped else Outcome.CANCELLED
