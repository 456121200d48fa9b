"""One request, as the graph knows it.

A ticket is the shared record; each field says who writes it. It is touched from the event loop
only. Whoever wants to end a request asks the ledger, which writes the outcome exactly once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from actors.outbox import Outbox
from actors.pacing import Pacing
from protocols.caller import Caller
from protocols.errors import InternalError
from protocols.spec import Sampling
from protocols.steps import EngineId, EngineTiming
from protocols.telemetry import CancelReason, Outcome, Phase
from protocols.trace_link import TraceLink

_NEXT: dict[Phase, frozenset[Phase]] = {
    Phase.RESOLVING: frozenset({Phase.WAITING, Phase.FINISHED}),
    Phase.WAITING: frozenset({Phase.PREFILL, Phase.FINISHED}),
    Phase.PREFILL: frozenset({Phase.DECODE, Phase.FINISHED}),
    Phase.DECODE: frozenset({Phase.FINISHED}),
    Phase.FINISHED: frozenset(),
}


@dataclass(slots=True)
class Times:
    """Monotonic seconds, each written by the actor that ends the hop before it."""

    arrived_s: float
    admitted_s: float | None = None  # intake
    resolved_s: float | None = None  # resolver
    submitted_s: float | None = None  # executor
    first_token_s: float | None = None  # streamer
    cancelled_s: float | None = None  # `wish_end`

    def wish_end(self, at_s: float) -> None:
        """Whoever learns that the request will end early: the first one's time holds."""
        if self.cancelled_s is None:
            self.cancelled_s = at_s


@dataclass(slots=True, eq=False)
class Ticket:
    """See the module's text. ``eq=False``: a ticket is itself, not its contents."""

    engine_id: EngineId
    caller: Caller
    outbox: Outbox
    times: Times
    # facade: the framework's own health check
    is_probe: bool = False
    # facade: nobody will take what is still owed, however the request ends
    is_reader_gone: bool = False
    # intake
    is_admitted: bool = False
    has_stop_strings: bool = False
    # Its prompt was computed elsewhere, which said what it had found there.
    has_prefilled_prompt: bool = False
    prompt_tokens: int = 0
    reserved_tokens: int = 0
    deadline_s: float | None = None
    budget_s: float | None = None
    predecessor: TraceLink | None = None
    # resolver
    n: int = 1
    sampling: Sampling | None = None
    max_tokens: int | None = None
    is_movable: bool = False  # not known before it is resolved
    # graph: the request as it came, while it brings a hand-off that the engine has not heard of
    handed_over: Mapping[str, Any] | None = None
    # graph: the monitor has been told that the caller left
    is_cancel_posted: bool = False
    # executor
    execute_context: object = None
    is_flow_posted: bool = False
    # intake, where another worker computed the prompt, else streamer
    cached_tokens: int = 0
    # streamer
    engine_timing: EngineTiming | None = None
    pacing: Pacing = field(default_factory=Pacing)
    preemptions: int = 0
    # of the first few
    preempted_s: list[float] = field(default_factory=list[float])
    # of the choices that ended before the request did
    finish_reasons: dict[int, str] = field(default_factory=dict[int, str])
    # monitor; first writer wins, read by all
    cancel_reason: CancelReason | None = None
    # ledger
    outcome: Outcome | None = None
    phase: Phase = field(default=Phase.RESOLVING)

    @property
    def is_ended(self) -> bool:
        """Whether the outcome is written: nothing more is owed beyond what waits in the outbox."""
        return self.outcome is not None

    def advance(self, to: Phase) -> None:
        """Move on. Raises InternalError where the table has no such way."""
        if to not in _NEXT[self.phase]:
            raise InternalError(f"request {self.engine_id}: {self.phase.value} -> {to.value}")
        self.phase = to
