"""The whole graph around an engine double, with books that are audited at the end of every test."""

from __future__ import annotations

from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import sniffio

from actors.graph import Graph, open_graph
from actors.settings import GraphSettings
from actors.surroundings import Surroundings
from actors.wakeup import EventWakeup
from protocols.telemetry import Outcome
from tests.doubles.callers import FakeCaller, Reader, wire_request
from tests.doubles.engines import ScriptedEngine
from tests.doubles.listeners import RecordingTelemetry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from actors.ticket import Ticket
    from actors.wakeup import Wakeup
    from protocols.steps import EngineId
    from protocols.telemetry import RequestStory

_MANY_TURNS = 60


class SpanningTelemetry(RecordingTelemetry):
    """Gives every request that goes to the engine a span, and gets it back with the request's story."""

    def __init__(self) -> None:
        super().__init__()
        self.open_spans: set[object] = set()

    def request_submitted(
        self, trace_headers: Mapping[str, str] | None
    ) -> tuple[tuple[tuple[str, str], ...], object]:
        headers, _ = super().request_submitted(trace_headers)
        span = object()
        self.open_spans.add(span)
        return headers, span

    def request_ended(self, story: RequestStory) -> None:
        super().request_ended(story)
        if story.submitted_s is None:
            assert story.execute_context is None
        else:
            self.open_spans.remove(story.execute_context)


class Visit:
    """One request from outside: who asks, our record of it, and the one who reads its answer."""

    def __init__(self, graph: Graph, caller: FakeCaller, wire: Any) -> None:
        self._graph = graph
        self.caller = caller
        self.ticket: Ticket = graph.submit(caller, wire)
        self.reader = Reader(self.ticket.outbox)
        self.is_closed = False

    @property
    def id(self) -> EngineId:
        """The engine's id of it."""
        return self.ticket.engine_id

    async def leave(self) -> None:
        """The client closes its connection: the framework marks the context and calls ``abort()``."""
        self.caller.leave()
        self._graph.cancel_context(self.caller.context_id)

    def close(self) -> None:
        """The framework lets go of the generator: nobody reads this answer any more."""
        self.is_closed = True
        self._graph.reader_gone(self.ticket)

    async def answer(self) -> Reader:
        """Read to the end."""
        return await self.reader.read_to_end()


class World:
    """An open graph, its engine, its listener, and everybody who has asked so far."""

    def __init__(self, engine: ScriptedEngine, settings: GraphSettings) -> None:
        self.engine = engine
        self.settings = settings
        self.listener = SpanningTelemetry()
        self.crashes: list[BaseException] = []
        # Called when the graph breaks, while it still stands.
        self.look_at_crash: Callable[[], None] = lambda: None
        self.visits: list[Visit] = []
        self.graph: Graph

    def ask(self, *, caller: FakeCaller | None = None, wire: Any = None, **options: Any) -> Visit:
        """Begin one request; options as in `wire_request`."""
        visit = Visit(self.graph, caller or FakeCaller(), wire_request(**options) if wire is None else wire)
        self.visits.append(visit)
        return visit

    def note_crash(self, exc: BaseException) -> None:
        """What the graph calls when it breaks."""
        self.crashes.append(exc)
        self.look_at_crash()

    async def ask_settled(self, **options: Any) -> Visit:
        """Begin one request and let the graph do with it what it can."""
        visit = self.ask(**options)
        await self.settle()
        return visit

    async def settle(self) -> None:
        """Until nothing moves any more without time passing.

        anyio finds that out on asyncio by looking every tenth of a second; there we go round the loop
        more often than any message has hops.
        """
        if sniffio.current_async_library() == "trio":
            await anyio.wait_all_tasks_blocked()
            return
        for _ in range(_MANY_TURNS):
            await anyio.lowlevel.checkpoint()

    def outcomes(self) -> dict[Outcome, int]:
        """The ledger's figures that are not zero."""
        return {outcome: count for outcome, count in self.graph.ledger.outcomes.items() if count}

    def check_books(self) -> None:
        """Holds after every single action: started = live + all outcomes, and one story each."""
        ledger = self.graph.ledger
        assert ledger.started == sum(not visit.ticket.is_probe for visit in self.visits)
        assert ledger.started == ledger.live_count + sum(ledger.outcomes.values())
        assert Counter(self.outcomes()) == self.listener.outcomes
        submitted = [visit for visit in self.visits if visit.ticket.times.submitted_s is not None]
        assert len(self.listener.open_spans) == sum(not visit.ticket.is_ended for visit in submitted)
        assert ledger.admitted <= self.settings.max_live
        assert ledger.admitted_probes <= 1
        assert ledger.reserved_tokens == sum(visit.ticket.reserved_tokens for visit in self.visits)
        assert ledger.reserved_tokens <= self.settings.outbox_total_tokens
        for visit in self.visits:
            ticket = visit.ticket
            assert ticket.is_ended == (ticket.outbox.terminal is not None)
            # Once a request has ended, only what is still unread is paid for.
            assert not ticket.is_ended or not ticket.reserved_tokens or ticket.outbox.waiting_tokens
            # What nobody will read is not kept.
            assert not ticket.is_ended or not visit.is_closed or not ticket.outbox.waiting_tokens
            assert visit.reader.terminals <= 1

    def check_lanes(self, except_for: str | None = None) -> None:
        """Holds whenever the graph has come to rest: no message lies about."""
        assert [box for box in self.graph.mailboxes() if box.waiting and box.actor != except_for] == []

    def check_closed(self) -> None:
        """Holds after the graph is closed, whatever it was closed for."""
        self.check_books()
        ledger = self.graph.ledger
        assert ledger.is_empty
        assert list(ledger.live()) == []
        assert not any(ledger.of_context(visit.caller.context_id) for visit in self.visits)
        assert ledger.admitted == ledger.admitted_probes == 0
        assert self.engine.starts == 1
        assert self.engine.stops == 1
        for visit in self.visits:
            self._check_ended(visit)

    def _check_ended(self, visit: Visit) -> None:
        story = self.listener.stories[visit.id]
        outbox, reader = visit.ticket.outbox, visit.reader
        assert reader.terminals == (1 if outbox.is_drained else 0)
        assert len(reader.tokens) == outbox.taken_tokens
        unread = story.completion_tokens - outbox.taken_tokens
        is_dropped = visit.is_closed or outbox.is_abandoned
        assert unread == outbox.waiting_tokens or (is_dropped and unread >= 0)


@asynccontextmanager
async def open_world(
    engine: ScriptedEngine | None = None, *, new_wakeup: Callable[[], Wakeup] = EventWakeup, **settings: Any
) -> AsyncIterator[World]:
    """Open the graph around an engine double; at the end it must be at rest before it is closed."""
    world = World(engine or ScriptedEngine(), GraphSettings(**settings))
    around = Surroundings(
        engine=world.engine,
        telemetry=world.listener,
        clock=anyio.current_time,
        on_crash=world.note_crash,
        new_wakeup=new_wakeup,
    )
    async with open_graph(world.settings, around) as graph:
        world.graph = graph
        yield world
        await world.settle()
        world.check_books()
        world.check_lanes()
