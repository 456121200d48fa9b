"""Executor: owns the engine. Submits while there is capacity, relays steps, aborts in one place.

Longer than the other actors: whoever may touch the rows of what the engine has is in this file.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import assert_never

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from actors.held_probes import HeldProbes
from actors.ledger import Ledger
from actors.mailbox import receive_all
from actors.outbox import Terminal
from actors.rows import Row, Rows
from actors.step_lane import StepLane
from actors.surroundings import Surroundings
from actors.ticket import Ticket
from actors.unclaimed import MOST_UNCLAIMED
from actors.vetting import Transcript
from actors.waiting_room import WaitingRoom
from actors.watchdog import HangWatch
from protocols.bounds import Bound
from protocols.errors import EngineDead, EngineShutdown, FailureCause, GenerationFailed, InternalError
from protocols.messages import Cancel, ExecutorControl, Flow, Resolved
from protocols.spec import GenerationSpec
from protocols.steps import Delta, EngineId, EngineStep
from protocols.telemetry import AbortResult, AbortStory, Outcome, Phase

# Compared once per token; looking a member up in its enum costs ten times a name of the module.
_PREFILL = Phase.PREFILL


# Looks of the hang watch (a tenth of its time-out each) after which an abort counts as unconfirmed.
UNCONFIRMED_LOOKS = 10


@dataclass(frozen=True, slots=True)
class ExecutorLanes:
    """The ends of the executor's lanes: it reads two and writes one."""

    inbox: MemoryObjectReceiveStream[Resolved]
    control: MemoryObjectReceiveStream[ExecutorControl]
    streamer: StepLane


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorLimits:
    """batch: sequences that run at once. capacity: sequences in the engine, its own queue included.

    vocab_size: ids it may produce. hang_timeout_s: how long it may owe a step without progress, or
    the confirmation of an abort.
    """

    batch: int
    capacity: int
    vocab_size: int
    hang_timeout_s: float


class Executor:
    """resolver -> **executor** -> engine -> **executor** -> streamer."""

    def __init__(
        self,
        lanes: ExecutorLanes,
        limits: ExecutorLimits,
        ledger: Ledger,
        around: Surroundings,
    ) -> None:
        self._lanes = lanes
        self._limits = limits
        self._ledger = ledger
        self._engine = around.engine
        self._kv_listener = around.kv_listener
        self._telemetry = around.telemetry
        self._clock = around.clock
        self._watch = HangWatch(limits.hang_timeout_s)
        self._waiting_room = WaitingRoom(self._telemetry.bound_reached)
        self._rows = Rows(limits.batch)
        self._probes = HeldProbes(ledger, self.vouches, self._is_free_for, self._submit)

    async def run(self) -> None:
        """Until it is cancelled. Raises EngineDead when the engine has made its last step."""
        lanes = self._lanes
        with closing(lanes.streamer):
            async with lanes.inbox, lanes.control, anyio.create_task_group() as loops:
                loops.start_soon(self._serve_control)
                loops.start_soon(self._serve_steps)
                loops.start_soon(self._watch_engine)
                await self._serve_requests()

    @property
    def running_requests(self) -> int:
        """Requests the engine holds, those being aborted included. Any thread."""
        return len(self._rows)

    @property
    def running_sequences(self) -> int:
        """Sequences the engine holds, those being aborted included."""
        return self._rows.used

    @property
    def waiting_requests(self) -> int:
        """Requests in the waiting room."""
        return len(self._waiting_room)

    @property
    def is_idle(self) -> bool:
        """Whether neither the executor nor the engine has anything of ours."""
        return not (self._rows or self._waiting_room or self._probes)

    def vouches(self) -> bool:
        """Whether the engine is known to be alive without being asked: users keep it busy, and it moves.

        That answers a health probe. Work of its own would have to wait for theirs, longer than the
        framework waits.
        """
        return self._is_busy() and self._watch.is_moving(self._engine.progress)

    def _is_busy(self) -> bool:
        return self._rows.are_users_served or bool(self._waiting_room)

    def _is_free_for(self, spec: GenerationSpec) -> bool:
        """Whether the engine could run this now, beside nobody."""
        return not self._is_busy() and self._rows.used + spec.sequences <= self._limits.batch

    async def _serve_requests(self) -> None:
        async for resolved in receive_all(self._lanes.inbox):
            self.on_resolved(resolved)

    async def _serve_control(self) -> None:
        async for message in receive_all(self._lanes.control):
            self.on_control(message)

    async def _serve_steps(self) -> None:
        while True:
            step = self.on_step(await self._engine.next_step())
            if self._lanes.streamer.is_full:
                self._telemetry.bound_reached(Bound.STREAMER_LANE)
            try:
                await self._lanes.streamer.send(step)
            except anyio.BrokenResourceError:
                # The streamer has died: the graph is about to be cancelled, and the cause is not ours.
                await anyio.sleep_forever()

    async def _watch_engine(self) -> None:
        while True:
            await anyio.sleep(self._watch.pause_s)
            self._look_at_aborts()
            if self._watch.look(is_owed=self._rows.is_step_owed, progress=self._engine.progress):
                raise EngineDead(
                    "the engine is hung: requests in flight, no step and no progress (--engine-hang-timeout)"
                )
            self._probes.serve()

    def _look_at_aborts(self) -> None:
        """Say once of each abort that the engine does not confirm. Its slot stays taken until it does."""
        for row in self._rows:
            row.looks_since_abort += row.is_aborting
            if row.looks_since_abort == UNCONFIRMED_LOOKS:
                self._tell_abort(row, AbortResult.TIMED_OUT)

    def on_resolved(self, resolved: Resolved) -> None:
        """A request may now wait for a slot. One that has ended meanwhile is dropped."""
        ticket = self._ledger.find(resolved.engine_id)
        if ticket is None:
            return
        if ticket.is_probe:
            self._probes.add(resolved)
            return
        if self._waiting_room or self._rows.used + resolved.spec.sequences > self._limits.capacity:
            self._telemetry.bound_reached(Bound.ENGINE_SEQUENCES)
        self._waiting_room.add(resolved)
        self._fill()

    def _relieve_probes(self) -> None:
        """Users came after a probe was submitted, and a step has been made: that answers it as well."""
        if not self._is_busy():
            return
        for row in self._rows:
            if row.ticket.is_probe and not row.is_aborting:
                self._ledger.answer_probe(row.ticket)
                self._abort(row)

    def on_control(self, message: ExecutorControl) -> None:
        """Cancel or flow. Messages about requests that the engine has finished are late: no-ops."""
        match message:
            case Cancel(engine_id=engine_id):
                self._on_cancel(engine_id)
            case Flow(engine_id=engine_id):
                self._on_flow(engine_id)
            case _:
                assert_never(message)
        self._probes.serve()

    def on_step(self, step: EngineStep) -> EngineStep:
        """Account for one step; returns what the streamer shall see of it.

        That is the step itself unless the engine said something that cannot be true: then without
        it, and the request it harms ends here.
        """
        self._kv_listener.step_made(step)
        sound: list[Delta] = []
        confirmed = 0
        for delta in step.deltas:
            row = self._rows.find(delta.engine_id)
            if row is None:
                continue
            flaw = row.transcript.flaw_of(delta)
            if flaw is None:
                sound.append(delta)
            else:
                self._end_failed(row.ticket, flaw, FailureCause.BROKEN_WORD)
            if row.ticket.phase is _PREFILL and delta.token_ids:
                row.ticket.advance(Phase.DECODE)
            if delta.is_last:
                confirmed += row.is_aborting
                self._free(row)
            elif flaw is not None:
                self._abort(row)
        only_confirmed = bool(confirmed) and confirmed == len(step.deltas) and self._rows.is_any_running
        if step.is_iteration and not only_confirmed:
            self._on_sign_of_life()
        self._fill()
        if len(sound) == len(step.deltas):
            return step
        return step.with_deltas(sound)

    def _on_sign_of_life(self) -> None:
        """Every iteration is one, but that which only lets some go while others wait for their tokens."""
        self._watch.stepped()
        if self._ledger.admitted_probes:
            self._relieve_probes()
            self._probes.serve()

    def _fill(self) -> None:
        """Submit while somebody waits and fits."""
        while self._waiting_room and self._rows.used < self._limits.capacity:
            resolved = self._waiting_room.next_fitting(self._limits.capacity - self._rows.used)
            if resolved is None:
                return
            self._submit(resolved)

    def _submit(self, resolved: Resolved) -> None:
        ticket = self._ledger.find(resolved.engine_id)
        if ticket is None:
            return
        ticket.times.submitted_s = self._clock()
        headers, ticket.execute_context = self._telemetry.request_submitted(ticket.caller.trace_headers)
        spec = resolved.spec.with_trace_headers(headers) if headers else resolved.spec
        ticket.advance(Phase.PREFILL)
        ticket.handed_over = None
        try:
            self._engine.submit(ticket.engine_id, spec)
        except (EngineShutdown, InternalError):
            raise
        except Exception as exc:
            text = f"the engine refused the request ({type(exc).__name__})"
            self._end_failed(ticket, text, FailureCause.SUBMIT)
            return
        self._add(ticket, spec)

    def take_over(self, ticket: Ticket, spec: GenerationSpec) -> None:
        """A request has ended before the engine heard of it: fetch what was handed over for it, and no more.

        An engine that is dead says so in its next step.
        """
        if self._rows.used >= self._limits.capacity + MOST_UNCLAIMED:
            self._telemetry.bound_reached(Bound.ENGINE_SEQUENCES)
            return
        try:
            self._engine.submit(ticket.engine_id, spec)
        except Exception:
            return
        self._abort(self._add(ticket, spec))

    def _add(self, ticket: Ticket, spec: GenerationSpec) -> Row:
        row = Row(ticket, spec, Transcript(spec, self._limits.vocab_size))
        self._rows.add(row)
        return row

    def _on_cancel(self, engine_id: EngineId) -> None:
        if self._waiting_room.discard(engine_id):
            # Slots may have been kept free for it.
            self._fill()
            return
        row = self._rows.find(engine_id)
        if row is not None:
            self._abort(row)

    def _on_flow(self, engine_id: EngineId) -> None:
        """Hold a request whose reader is behind, or let it go on. The outbox says which."""
        row = self._rows.find(engine_id)
        if row is None:
            return
        row.ticket.is_flow_posted = False
        wanted = row.ticket.outbox.is_held
        if wanted != row.is_paused and not row.is_aborting and self._engine.capabilities.can_pause:
            row.is_paused = wanted
            if wanted:
                self._telemetry.bound_reached(Bound.OUTBOX)
            (self._engine.pause if wanted else self._engine.resume)(engine_id)

    def _abort(self, row: Row) -> None:
        """The only place that tells the engine to end a request early. It confirms by a last delta."""
        if row.is_aborting:
            return
        row.aborted_s = self._clock()
        self._tell_abort(row, AbortResult.ASKED)
        self._engine.abort(row.ticket.engine_id)

    def _free(self, row: Row) -> None:
        self._rows.remove(row)
        self._tell_abort(row, AbortResult.CONFIRMED)

    def _tell_abort(self, row: Row, result: AbortResult) -> None:
        ticket = row.ticket
        if row.aborted_s is None or ticket.is_probe:
            return
        abort = AbortStory(
            engine_id=ticket.engine_id,
            context_id=ticket.caller.context_id,
            result=result,
            asked_s=row.aborted_s,
            at_s=self._clock(),
            trace_headers=ticket.caller.trace_headers,
        )
        self._telemetry.abort_told(abort)

    def _end_failed(self, ticket: Ticket, text: str, cause: FailureCause) -> None:
        error = GenerationFailed(text, cause)
        self._ledger.end(ticket, Outcome.FAILED, Terminal(error=error))
