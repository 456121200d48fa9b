"""The door: open or closed, and what a request must leave behind to come in."""

from __future__ import annotations

import math

from actors.ledger import Ledger
from actors.settings import GraphSettings
from actors.ticket import Ticket
from protocols.engine import EngineCapabilities, EngineInfo
from protocols.errors import EngineShutdown, InvalidRequest, Overloaded
from protocols.requests import GenerateRequest
from protocols.steps import EngineId

DEADLINE_KEY = "deadline-ms"
# A day. Longer deadlines are typing mistakes (seconds written as microseconds).
_LONGEST_DEADLINE_MS = 86_400_000
# An engine that works for users is known to be alive without one; any other needs no second opinion.
_PROBE_PLACES = 1
# Steps that still bring tokens when an outbox is full: 4 in the streamer's lane, 4 in the driver, one in each
# hand between them, and what the engine makes while the word to pause goes back. Counted: 12.
STEPS_UNDER_WAY = 16


class Admission:
    """Decides at once; remembers nothing but when the door was closed.

    Besides the ``max_live`` places there is one for the health probe that the engine works at, so
    that a full worker still shows that it is alive.
    """

    def __init__(
        self, ledger: Ledger, settings: GraphSettings, capabilities: EngineCapabilities, info: EngineInfo
    ) -> None:
        self._ledger = ledger
        self._settings = settings
        self._capabilities = capabilities
        self._info = info
        self._last_to_enter: EngineId | None = None

    def close(self) -> None:
        """Nobody new comes in; requests that were sent before this moment still do. Closed stays closed."""
        if self._last_to_enter is None:
            self._last_to_enter = self._ledger.last_id

    def open(self) -> None:
        """Everybody may come in again."""
        self._last_to_enter = None

    def check_door(self, ticket: Ticket) -> None:
        """Raises EngineShutdown when it is closed."""
        if self._last_to_enter is not None and ticket.engine_id > self._last_to_enter:
            raise EngineShutdown("this worker is draining")

    def check_room(self, ticket: Ticket) -> None:
        """Raises Overloaded when every place is taken."""
        if ticket.is_probe:
            if self._ledger.admitted_probes >= _PROBE_PLACES:
                raise Overloaded("max_live", "another health probe is still running")
        elif self._ledger.admitted >= self._settings.max_live:
            raise Overloaded("max_live", f"{self._settings.max_live} requests are live (--max-live)")

    def bound_of(self, request: GenerateRequest) -> int:
        """Unread tokens at which this request is held back.

        An engine that can pause does so at the bound of one outbox. One that cannot may put everything
        there that it will ever generate.
        """
        return self._settings.outbox_tokens if self._capabilities.can_pause else self._most_output(request)

    def _most_unread(self, request: GenerateRequest) -> int:
        """Tokens that may ever lie in this request's outbox: its bound, and what comes when it is full."""
        late = self._choices(request) * STEPS_UNDER_WAY
        return min(self.bound_of(request) + late, self._most_output(request))

    def reserve(self, request: GenerateRequest) -> int:
        """What is set aside for the outbox, in plain tokens; one with logprobs weighs as its candidates do.

        Raises Overloaded when the total would be passed; InvalidRequest when it would not fit even into
        an empty worker.
        """
        output = request.output_options
        tokens = self._most_unread(request) * (1 + self._candidates(output.logprobs))
        if output.prompt_logprobs is not None:
            tokens += len(request.token_ids) * (1 + self._candidates(output.prompt_logprobs))
        total = self._settings.outbox_total_tokens
        if tokens > total:
            allowed = f"max_tokens x n x (1 + logprobs) of at most {total} (--outbox-total-tokens)"
            raise InvalidRequest("stop_conditions.max_tokens", tokens, allowed)
        if self._ledger.reserved_tokens + tokens > total:
            raise Overloaded("outbox_tokens", f"{total} unread tokens are reserved (--outbox-total-tokens)")
        return tokens

    def _candidates(self, asked: int | None) -> int:
        """A number of logprobs that the resolver will refuse by name counts as the nearest right one."""
        return min(max(0, asked or 0), self._capabilities.max_logprobs or 0)

    def _most_output(self, request: GenerateRequest) -> int:
        """Over all choices."""
        room = max(1, self._info.context_length - len(request.token_ids))
        return min(request.stop_conditions.max_tokens or room, room) * self._choices(request)

    def _choices(self, request: GenerateRequest) -> int:
        """An n that the resolver will refuse by name counts as the nearest right one."""
        return min(max(1, request.sampling_options.n or 1), self._capabilities.max_n)

    def set_deadline(self, ticket: Ticket) -> None:
        """Give the ticket its deadline: the sooner of the operator's and the client's.

        Raises InvalidRequest for a header that is not a positive number of milliseconds.
        """
        budgets = [self._settings.deadline_s, _client_budget_s(ticket.caller.metadata.get(DEADLINE_KEY))]
        known = [budget for budget in budgets if budget is not None]
        if known:
            ticket.budget_s = min(known)
            ticket.deadline_s = ticket.times.arrived_s + ticket.budget_s


def _client_budget_s(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        budget_ms = float(text)
    except (TypeError, ValueError):
        budget_ms = math.nan
    if not 0 < budget_ms <= _LONGEST_DEADLINE_MS:
        allowed = f"a number of milliseconds above 0, at most {_LONGEST_DEADLINE_MS}"
        raise InvalidRequest(f"x-dynamo-meta-{DEADLINE_KEY}", text, allowed)
    return budget_ms / 1000
