"""The books without the graph: a ledger, a listener and a clock set by hand, for tests of single actors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from actors.ledger import Ledger
from actors.outbox import Outbox, Terminal
from actors.wakeup import EventWakeup
from protocols.telemetry import Phase
from tests.doubles.callers import FakeCaller
from tests.doubles.listeners import RecordingTelemetry

if TYPE_CHECKING:
    from actors.ticket import Ticket

_ON_THE_WAY = (Phase.RESOLVING, Phase.WAITING, Phase.PREFILL, Phase.DECODE)


def last_word(ticket: Ticket) -> Terminal:
    """The terminal of a request that has ended."""
    assert ticket.outbox.terminal is not None
    return ticket.outbox.terminal


def closed_lane() -> tuple[Any, Any]:
    """Both ends of a lane for an actor whose handlers are called by hand: nothing ever waits there."""
    ends = anyio.create_memory_object_stream[Any](1)
    for end in ends:
        end.close()
    return ends


class Office:
    """Opens tickets as the facade does, and moves them to the phase a test wants."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.listener = RecordingTelemetry()
        self.ledger = Ledger(self.clock, self.listener)
        self.flows: list[Ticket] = []

    def clock(self) -> float:
        return self.now_s

    def open(
        self, caller: FakeCaller | None = None, phase: Phase = Phase.RESOLVING, *, is_probe: bool = False
    ) -> Ticket:
        """A live request in this phase."""
        engine_id = self.ledger.new_id()
        outbox = Outbox(EventWakeup(), self.clock, 32, lambda: self.flows.append(ticket))
        ticket = self.ledger.open(engine_id, caller or FakeCaller(), outbox, is_probe=is_probe)
        for step in _ON_THE_WAY[1 : _ON_THE_WAY.index(phase) + 1]:
            ticket.advance(step)
        return ticket
