"""Spec resolver: turns a request into what an engine can run, or refuses it by name."""

from __future__ import annotations

from collections.abc import Callable

from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from actors.intake import rejection_reason
from actors.ledger import Ledger
from actors.mailbox import receive_all, send
from actors.resolving import SpecRules
from actors.ticket import Ticket
from protocols.errors import InvalidRequest
from protocols.messages import Admitted, Resolved
from protocols.telemetry import Phase, Telemetry


class SpecResolver:
    """intake -> **resolver** -> executor. Everything a request can get wrong is found here."""

    def __init__(
        self,
        inbox: MemoryObjectReceiveStream[Admitted],
        executor: MemoryObjectSendStream[Resolved],
        ledger: Ledger,
        rules: SpecRules,
        clock: Callable[[], float],
        telemetry: Telemetry,
    ) -> None:
        self._inbox = inbox
        self._executor = executor
        self._ledger = ledger
        self._rules = rules
        self._clock = clock
        self._telemetry = telemetry

    async def run(self) -> None:
        """Until intake has closed its end."""
        async with self._inbox, self._executor:
            async for admitted in receive_all(self._inbox):
                resolved = self.on_admitted(admitted)
                if resolved is not None:
                    await send(self._executor, resolved)

    def on_admitted(self, admitted: Admitted) -> Resolved | None:
        """Resolve, or refuse with the name of the field. A request that has ended is dropped."""
        ticket = self._ledger.find(admitted.engine_id)
        if ticket is None:
            return None
        try:
            spec = self._rules.resolve(admitted.request)
        except InvalidRequest as exc:
            self._telemetry.request_rejected(rejection_reason(exc))
            self._ledger.refuse(ticket, exc)
            return None
        self._note(ticket, spec.n, is_movable=spec.is_movable)
        return Resolved(ticket.engine_id, spec)

    def _note(self, ticket: Ticket, n: int, *, is_movable: bool) -> None:
        ticket.n = n
        ticket.is_movable = is_movable
        ticket.times.resolved_s = self._clock()
        ticket.advance(Phase.WAITING)
