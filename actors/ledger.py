"""The books: every request that was started, which of them live, and how the others ended.

One place opens a request and one place ends it, both without waiting, so the books balance after
every single action: started = live + the sum of all outcomes. Ending a request frees its place, puts
the terminal into its seat, and tells the listener, exactly once and before its reader can run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from actors.outbox import Outbox, Terminal
from actors.ticket import Ticket, Times
from protocols.caller import Caller
from protocols.errors import EngineError, FailureCause, GenerationFailed, ServiceError
from protocols.rejections import refused_field_of, reject_reason_of
from protocols.steps import EngineId, FinishReason
from protocols.telemetry import CancelReason, Outcome, Phase, RequestStory, Telemetry


class Ledger:
    """Read by all actors, written through `open`, `admit`, `end` and `release` only."""

    def __init__(self, clock: Callable[[], float], telemetry: Telemetry) -> None:
        self._clock = clock
        self._telemetry = telemetry
        self._live: dict[EngineId, Ticket] = {}
        # The live request of an id; None when it has ended. Asked for every token, hence no method.
        self.find: Callable[[EngineId], Ticket | None] = self._live.get
        # Of those that ended, the ones whose reader is still there.
        self._unread: dict[EngineId, Ticket] = {}
        self._by_context: dict[str, list[Ticket]] = {}
        # Of the request that was begun last; ids rise.
        self.last_id = EngineId(0)
        self._on_change: list[Callable[[], None]] = []
        # Told of requests that end with a hand-off that their engine has not heard of.
        self.on_unclaimed: Callable[[Ticket], None] = leave_unclaimed
        self.started = 0
        # Requests without an outcome, admitted or not; health probes are in no count. One number: scrapes
        # read it in threads of their own.
        self.live_count = 0
        # Places taken at the door. Probes are counted apart: they never take a user's place.
        self.admitted = 0
        self.admitted_probes = 0
        self.reserved_tokens = 0
        self.outcomes: dict[Outcome, int] = dict.fromkeys(Outcome, 0)
        # Of the interrupted ones, those that a frontend can continue on another worker.
        self.moved = 0

    def new_id(self) -> EngineId:
        """An id that no engine has seen before."""
        self.last_id = EngineId(self.last_id + 1)
        return self.last_id

    def open(self, engine_id: EngineId, caller: Caller, outbox: Outbox, *, is_probe: bool = False) -> Ticket:
        """Facade: one call of ``generate()`` has begun. From here on it owes an outcome."""
        ticket = Ticket(engine_id, caller, outbox, Times(arrived_s=self._clock()), is_probe=is_probe)
        self._live[engine_id] = ticket
        self._by_context.setdefault(caller.context_id, []).append(ticket)
        if not is_probe:
            self.live_count += 1
            self.started += 1
        self._changed()
        return ticket

    def admit(self, ticket: Ticket, reserved_tokens: int) -> None:
        """Intake: the request has a place, and memory for what its reader leaves lying."""
        ticket.is_admitted = True
        ticket.reserved_tokens = reserved_tokens
        ticket.times.admitted_s = self._clock()
        self._count_place(ticket, 1)
        self.reserved_tokens += reserved_tokens

    def end(
        self, ticket: Ticket, outcome: Outcome, terminal: Terminal, *, drop_waiting: bool = False
    ) -> bool:
        """Give a request its outcome. False when it already had one."""
        if ticket.is_ended:
            return False
        reached = ticket.phase
        ticket.outcome = outcome
        ticket.advance(Phase.FINISHED)
        self._forget(ticket)
        if not ticket.is_probe:
            self.outcomes[outcome] += 1
            self.moved += _is_moved(ticket, outcome)
        ticket.outbox.finish(terminal, drop_waiting=drop_waiting or ticket.is_reader_gone)
        if not ticket.is_reader_gone:
            self._unread[ticket.engine_id] = ticket
        if ticket.outbox.waiting_tokens == 0:
            self.release(ticket)
        else:
            ticket.outbox.on_empty = partial(self.release, ticket)
        self._telemetry.request_ended(self._story(ticket, outcome, terminal, reached))
        if ticket.handed_over is not None:
            self.on_unclaimed(ticket)
        self._changed()
        return True

    def release(self, ticket: Ticket) -> None:
        """Give back the memory set aside for a request's reader: it has read everything, or is gone.

        A request that has ended keeps it until then, or unread answers would have no bound.
        """
        self.reserved_tokens -= ticket.reserved_tokens
        ticket.reserved_tokens = 0

    def reader_closed(self, ticket: Ticket) -> None:
        """Nobody will read any more what this request, which has ended, is still owed."""
        ticket.outbox.drop()
        self.release(ticket)
        self._unread.pop(ticket.engine_id, None)

    def abandon(self, ticket: Ticket, error: ServiceError) -> None:
        """The same for one that is there and takes nothing: this is what it finds, should it come back."""
        ticket.outbox.abandon(Terminal(error=error))
        self.reader_closed(ticket)

    def note_cancel(self, ticket: Ticket, reason: CancelReason) -> None:
        """Write why a request is about to end early; the first reason holds. Probes are in no count."""
        ticket.times.wish_end(self._clock())
        ticket.cancel_reason = ticket.cancel_reason or reason
        if not ticket.is_probe:
            self._telemetry.request_cancelled(ticket.cancel_reason, ticket.phase)

    def answer_probe(self, ticket: Ticket) -> None:
        """End a health probe well, without work of its own: users keep the engine busy, and it moves."""
        terminal = Terminal(finish_reason=FinishReason.LENGTH, prompt_tokens=ticket.prompt_tokens)
        self.end(ticket, Outcome.COMPLETED, terminal)

    def refuse(self, ticket: Ticket, error: ServiceError) -> None:
        """End a request before the engine heard of it, with the reason for its caller."""
        self.end(ticket, Outcome.REFUSED, Terminal(error=error))

    def of_context(self, context_id: str) -> Iterable[Ticket]:
        """Live requests of one caller's id: usually one, never assumed to be."""
        return tuple(self._by_context.get(context_id, ()))

    def live(self) -> Iterator[Ticket]:
        """A snapshot of all live requests, oldest first."""
        return iter(tuple(self._live.values()))

    def unread(self) -> Iterator[Ticket]:
        """A snapshot of those that ended and are still being read, in the order of their ends."""
        return iter(tuple(self._unread.values()))

    @property
    def oldest_live_id(self) -> EngineId | None:
        """The live request that began first, health probes aside; None when nobody is live."""
        return next((engine_id for engine_id, ticket in self._live.items() if not ticket.is_probe), None)

    @property
    def is_empty(self) -> bool:
        """Whether nobody is owed anything but what already lies in an outbox."""
        return not self._live

    @property
    def is_read(self) -> bool:
        """Whether the reader of every ended request is gone."""
        return not self._unread

    def watch(self, on_change: Callable[[], None]) -> None:
        """Call this after every opening and ending (drain and sweeper wake up by it)."""
        self._on_change.append(on_change)

    def _forget(self, ticket: Ticket) -> None:
        del self._live[ticket.engine_id]
        self.live_count -= not ticket.is_probe
        namesakes = self._by_context[ticket.caller.context_id]
        namesakes.remove(ticket)
        if not namesakes:
            del self._by_context[ticket.caller.context_id]
        if ticket.is_admitted:
            self._count_place(ticket, -1)

    def _count_place(self, ticket: Ticket, change: int) -> None:
        if ticket.is_probe:
            self.admitted_probes += change
        else:
            self.admitted += change

    def _changed(self) -> None:
        for on_change in self._on_change:
            on_change()

    def _story(self, ticket: Ticket, outcome: Outcome, terminal: Terminal, reached: Phase) -> RequestStory:
        times = ticket.times
        outbox = ticket.outbox
        reason = terminal.finish_reason.value if terminal.finish_reason else None
        return RequestStory(
            engine_id=ticket.engine_id,
            context_id=ticket.caller.context_id,
            outcome=outcome,
            phase=reached,
            arrived_s=times.arrived_s,
            admitted_s=times.admitted_s,
            resolved_s=times.resolved_s,
            submitted_s=times.submitted_s,
            first_token_s=times.first_token_s,
            ended_s=self._clock(),
            prompt_tokens=ticket.prompt_tokens,
            completion_tokens=outbox.taken_tokens + outbox.waiting_tokens,
            cached_tokens=ticket.cached_tokens,
            n=ticket.n,
            finish_reason=reason,
            finish_reasons=tuple(ticket.finish_reasons.get(index, reason) for index in range(ticket.n)),
            cancel_reason=ticket.cancel_reason,
            error_kind=type(terminal.error).__name__ if terminal.error else None,
            error_text=str(terminal.error) if isinstance(terminal.error, EngineError) else None,
            is_probe=ticket.is_probe,
            trace_headers=ticket.caller.trace_headers,
            execute_context=ticket.execute_context,
            cancelled_s=None if ticket.cancel_reason is None else times.cancelled_s,
            chunks=outbox.chunks,
            pace=ticket.pacing.pace(),
            preemptions=ticket.preemptions,
            preempted_s=tuple(ticket.preempted_s),
            sampling=ticket.sampling,
            max_tokens=ticket.max_tokens,
            predecessor=ticket.predecessor,
            engine_timing=ticket.engine_timing,
            is_moved=_is_moved(ticket, outcome),
            reject_reason=reject_reason_of(terminal.error) if outcome is Outcome.REFUSED else None,
            refused_field=refused_field_of(terminal.error),
            failure_cause=_cause_of(terminal.error) if outcome is Outcome.FAILED else None,
        )


def leave_unclaimed(ticket: Ticket) -> None:
    """Nobody can fetch what was handed over: its prefill worker gives it up after a while."""
    ticket.handed_over = None


def _cause_of(error: ServiceError | None) -> FailureCause:
    return error.cause if isinstance(error, GenerationFailed) else FailureCause.DEAD


def _is_moved(ticket: Ticket, outcome: Outcome) -> bool:
    return outcome is Outcome.INTERRUPTED and ticket.is_movable
