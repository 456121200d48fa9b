"""Request intake: the first actor a request meets. Admits it or refuses it, at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from actors.admission import Admission
from actors.ledger import Ledger
from actors.mailbox import receive_all, send
from actors.outbox import Terminal
from actors.ticket import Ticket
from protocols.bounds import Bound
from protocols.errors import Overloaded, ServiceError
from protocols.messages import Admitted, Submit
from protocols.requests import PrefillResult, decode_request, unknown_keys
from protocols.steps import FinishReason
from protocols.telemetry import CancelReason, Outcome, Telemetry
from protocols.trace_link import read_trace_link

# Keys without a meaning that are named of one request; a request may bring thousands.
MOST_NAMED = 8


class RequestIntake:
    """facade -> **intake** -> resolver.

    vouches: whether the engine shows without being asked that it is alive; then a health probe is
    answered here, and needs no place.
    """

    def __init__(
        self,
        inbox: MemoryObjectReceiveStream[Submit],
        resolver: MemoryObjectSendStream[Admitted],
        ledger: Ledger,
        admission: Admission,
        telemetry: Telemetry,
        vouches: Callable[[], bool],
    ) -> None:
        self._inbox = inbox
        self._resolver = resolver
        self._ledger = ledger
        self._admission = admission
        self._telemetry = telemetry
        self._vouches = vouches
        self._on_full = partial(telemetry.bound_reached, Bound.RESOLVER_LANE)

    async def run(self) -> None:
        """Until the facade's end of the lane is closed."""
        async with self._inbox, self._resolver:
            async for submit in receive_all(self._inbox):
                admitted = self.on_submit(submit)
                if admitted is not None:
                    await send(self._resolver, admitted, self._on_full)

    def on_submit(self, submit: Submit) -> Admitted | None:
        """Admit, or end the request here: refused with a typed error, or already cancelled."""
        ticket = self._ledger.find(submit.engine_id)
        if ticket is None:
            return None
        if ticket.caller.is_stopped():
            self._end_unheard(ticket)
            return None
        try:
            return self._admit(ticket, submit)
        except ServiceError as exc:
            if ticket.is_probe and isinstance(exc, Overloaded):
                self._telemetry.bound_reached(Bound.HEALTH_PROBES)
            self._ledger.refuse(ticket, exc)
            return None

    def _admit(self, ticket: Ticket, submit: Submit) -> Admitted | None:
        self._admission.check_door(ticket)
        is_vouched_for = ticket.is_probe and self._vouches()
        if not is_vouched_for:
            self._admission.check_room(ticket)
        request = decode_request(submit.wire)
        self._name_unknown(submit.wire)
        ticket.prompt_tokens = len(request.token_ids)
        ticket.predecessor = read_trace_link(request.migration_link)
        _note_prefilled(ticket, request.prefill_result)
        if is_vouched_for:
            self._ledger.answer_probe(ticket)
            return None
        ticket.has_stop_strings = bool(request.stop_conditions.stop)
        self._admission.set_deadline(ticket)
        reserved_tokens = self._admission.reserve(request)
        ticket.outbox.bound_tokens = self._admission.bound_of(request)
        self._ledger.admit(ticket, reserved_tokens)
        return Admitted(ticket.engine_id, request)

    def _name_unknown(self, wire: Mapping[str, Any]) -> None:
        strange = unknown_keys(wire)
        for key in strange[:MOST_NAMED]:
            self._telemetry.request_named_unknown(key)
        if len(strange) > MOST_NAMED:
            self._telemetry.bound_reached(Bound.UNKNOWN_KEYS)

    def _end_unheard(self, ticket: Ticket) -> None:
        """The caller left before anybody looked at the request: the engine never hears of it."""
        self._ledger.note_cancel(ticket, CancelReason.CLIENT)
        terminal = Terminal(finish_reason=FinishReason.CANCELLED)
        self._ledger.end(ticket, Outcome.CANCELLED, terminal, drop_waiting=True)


def _note_prefilled(ticket: Ticket, answer: PrefillResult | None) -> None:
    """The worker that computed the prompt knows what it had not to compute."""
    details = None if answer is None else answer.prompt_tokens_details
    if details is not None and details.cached_tokens is not None:
        ticket.has_prefilled_prompt = True
        ticket.cached_tokens = min(details.cached_tokens, ticket.prompt_tokens)
