"""The drawing as code: who talks to whom, over which lane, and in which order all of it ends."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio

from actors.admission import Admission
from actors.cancellation import CancellationMonitor
from actors.drain import DrainCoordinator, DrainLadder
from actors.executor import Executor, ExecutorLanes, ExecutorLimits
from actors.intake import RequestIntake
from actors.lanes import Lanes
from actors.ledger import Ledger, leave_unclaimed
from actors.mailbox import Mailbox
from actors.outbox import Outbox, Terminal
from actors.resolver import ResolverLanes, SpecResolver
from actors.resolving import SpecRules, seeds_from
from actors.settings import GraphSettings
from actors.streamer import ChunkStreamer
from actors.surroundings import Surroundings
from actors.ticket import Ticket
from actors.unclaimed import has_handoff, unclaimed_spec
from protocols.bounds import Bound
from protocols.caller import Caller
from protocols.engine import EngineInfo
from protocols.errors import EngineShutdown, InternalError, Overloaded
from protocols.messages import CancelContext, Flow, MonitorControl, ReaderGone, Submit
from protocols.requests import is_probe
from protocols.spec import Stage
from protocols.telemetry import CancelReason, DrainReport, Outcome, WorkerState


class Graph:
    """The open graph, as the facade sees it. All methods belong to the event loop."""

    def __init__(self, settings: GraphSettings, around: Surroundings, info: EngineInfo) -> None:
        engine, telemetry, clock = around.engine, around.telemetry, around.clock
        lanes = Lanes.of(settings.max_live, around.new_wakeup)
        ledger = Ledger(clock, telemetry)
        capacity = info.max_num_seqs + settings.engine_queue
        limits = ExecutorLimits(
            batch=info.max_num_seqs,
            capacity=capacity,
            vocab_size=info.vocab_size,
            hang_timeout_s=settings.hang_timeout_s,
        )
        admission = Admission(ledger, settings, engine.capabilities, info)
        rules = SpecRules(
            engine.name,
            engine.capabilities,
            info,
            capacity,
            seeds_from(settings.default_seed),
            settings.default_processors,
        )
        to_resolver = lanes.resolver.send
        resolver_ends = ResolverLanes(
            lanes.resolver.receive,
            lanes.executor.send,
            lanes.resolver_parked.send,
            lanes.resolver_parked.receive,
        )
        to_monitor, tell_executor = lanes.monitor.send.clone(), lanes.executor_control.send.clone()
        executor_ends = ExecutorLanes(lanes.executor.receive, lanes.executor_control.receive, lanes.streamer)

        self._settings, self._around, self._info, self._lanes = settings, around, info, lanes
        self.ledger = ledger
        self.drain = DrainCoordinator(to_monitor, ledger, admission, clock, telemetry)
        self.executor = Executor(executor_ends, limits, ledger, around)
        ledger.on_unclaimed = self._take_over
        self.actors = (
            RequestIntake(
                lanes.intake.receive, to_resolver, ledger, admission, telemetry, self.executor.vouches
            ),
            SpecResolver(resolver_ends, ledger, rules, around),
            self.executor,
            ChunkStreamer(lanes.streamer, ledger, telemetry),
            CancellationMonitor(lanes.monitor.receive, tell_executor, ledger, settings, clock, telemetry),
            self.drain,
        )

    @property
    def info(self) -> EngineInfo:
        """What the engine said at its start."""
        return self._info

    def submit(self, caller: Caller, wire: Mapping[str, Any]) -> Ticket:
        """Facade: begin one request. Never raises: its outbox holds the answer, or the refusal."""
        engine_id = self.ledger.new_id()
        outbox = Outbox(
            self._around.new_wakeup(),
            self._around.clock,
            self._settings.chunk_tokens,
            partial(self._flow, engine_id),
        )
        ticket = self.ledger.open(engine_id, caller, outbox, is_probe=is_probe(wire))
        if self._around.engine.capabilities.role is Stage.DECODE and has_handoff(wire):
            ticket.handed_over = wire
        try:
            self._lanes.intake.send.send_nowait(Submit(engine_id, wire))
        except anyio.WouldBlock:
            self.ledger.refuse(ticket, Overloaded("intake_full", "the intake's lane is full"))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            self.ledger.refuse(ticket, EngineShutdown("this worker has stopped"))
        return ticket

    def cancel_context(self, context_id: str) -> None:
        """Facade: the framework says that a caller has left.

        Of strangers and of those that have ended the monitor never hears.
        """
        stopped = [ticket for ticket in self.ledger.of_context(context_id) if ticket.caller.is_stopped()]
        if all(ticket.is_cancel_posted for ticket in stopped):
            return
        # Once a request: however often the framework says it, the lane cannot be filled by one of them.
        for ticket in stopped:
            ticket.is_cancel_posted = True
            ticket.times.wish_end(self._around.clock())
        self._tell_monitor(CancelContext(context_id))

    def reader_gone(self, ticket: Ticket) -> None:
        """Facade: the generator of this request is closed. A request that has ended does not mind."""
        if ticket.is_ended:
            self.ledger.reader_closed(ticket)
            return
        if ticket.is_reader_gone:
            return
        # Written before the message: the request may end in another way before the monitor reads it.
        ticket.is_reader_gone = True
        ticket.times.wish_end(self._around.clock())
        self._tell_monitor(ReaderGone(ticket.engine_id))

    async def drain_by(self, ladder: DrainLadder) -> DrainReport:
        """Close the door and wait until nobody is live. May be called by several tasks at once."""
        self.drain.begin(ladder)
        return await self.drain.wait_over()

    def mailboxes(self) -> list[Mailbox]:
        """Depth and capacity of every lane. Any thread: the figures are counters."""
        return self._lanes.mailboxes()

    def close(self) -> None:
        """End whoever is still live, whatever the reason the graph closes for, and all lanes."""
        self.ledger.on_unclaimed = leave_unclaimed
        for ticket in self.ledger.live():
            self.ledger.note_cancel(ticket, CancelReason.ENGINE_DEAD)
            error = EngineShutdown("this worker can no longer serve")
            self.ledger.end(ticket, Outcome.FAILED, Terminal(error=error))
        self._lanes.close()

    def _tell_monitor(self, message: MonitorControl) -> None:
        try:
            self._lanes.monitor.send.send_nowait(message)
        except anyio.WouldBlock:
            raise InternalError(
                "the monitor's control lane is full; it is sized so that it cannot be"
            ) from None
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            # The graph is closed: every request has its outcome already.
            return

    def _take_over(self, ticket: Ticket) -> None:
        """Ledger: a request has ended whose hand-off the engine has not heard of."""
        wire, ticket.handed_over = ticket.handed_over, None
        spec = None if wire is None else unclaimed_spec(wire, self._info, self._around.engine.preparer)
        if spec is not None:
            self.executor.take_over(ticket, spec)

    def _flow(self, ticket_id: Any) -> None:
        """Outbox: a bound was crossed. One message at a time is enough: it says 'look', not 'what'."""
        ticket = self.ledger.find(ticket_id)
        if ticket is None or ticket.is_flow_posted or not self._around.engine.capabilities.can_pause:
            return
        ticket.is_flow_posted = True
        try:
            self._lanes.executor_control.send.send_nowait(Flow(ticket_id))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            # The executor is gone and the graph about to close: nothing flows any more.
            return


@asynccontextmanager
async def open_graph(settings: GraphSettings, around: Surroundings) -> AsyncGenerator[Graph]:
    """Start the engine, then the actors; end them in the reverse order.

    Whatever outlives what is visible here as indentation. An actor that raises cancels the body;
    the engine is stopped in every case, also when its start failed or was cancelled, and not waited
    for beyond `GraphSettings.engine_stop_s`.
    """
    telemetry, engine = around.telemetry, around.engine
    telemetry.state_changed(WorkerState.LOADING)
    try:
        graph = Graph(settings, around, await engine.start())
        try:
            async with anyio.create_task_group() as actors:
                for actor in graph.actors:
                    actors.start_soon(actor.run, name=type(actor).__name__)
                telemetry.state_changed(WorkerState.SERVING)
                yield graph
                actors.cancel_scope.cancel()
        except (Exception, BaseExceptionGroup) as exc:
            # A group of what is no Exception: a library in another language that panicked inside an actor.
            telemetry.state_changed(WorkerState.FAILED)
            around.on_crash(exc)
            raise
        finally:
            graph.close()
    finally:
        telemetry.state_changed(WorkerState.STOPPING)
        with anyio.move_on_after(settings.engine_stop_s, shield=True) as patience:
            await engine.stop()
        if patience.cancelled_caught:
            telemetry.bound_reached(Bound.ENGINE_STOP)
