"""Spec resolver: turns a request into what an engine can run, or refuses it by name.

What an engine must prepare (a grammar, a logits processor) is parked for the second loop, so that a
costly one holds up only its like: other requests overtake it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from actors.ledger import Ledger
from actors.logprob_writer import LogprobWriter
from actors.mailbox import receive_all, send
from actors.outbox import Terminal
from actors.resolving import SpecRules
from actors.surroundings import Surroundings
from actors.ticket import Ticket
from protocols.bounds import Bound
from protocols.errors import (
    EngineShutdown,
    FailureCause,
    GenerationFailed,
    InternalError,
    Overloaded,
    RequestError,
)
from protocols.messages import Admitted, Resolved, Unprepared
from protocols.spec import GenerationSpec
from protocols.telemetry import Outcome, Phase

# A request whose turn to be prepared comes later than this would have waited too long: while the one
# under way is older, the next ones are refused. A burst of equal or cheap ones never gets there.
LONGEST_PARKED_S = 10.0


@dataclass(frozen=True, slots=True)
class ResolverLanes:
    """The ends of the resolver's lanes; ``parked`` is its own, from the first loop to the second."""

    inbox: MemoryObjectReceiveStream[Admitted]
    executor: MemoryObjectSendStream[Resolved]
    park: MemoryObjectSendStream[Unprepared]
    parked: MemoryObjectReceiveStream[Unprepared]


class SpecResolver:
    """intake -> **resolver** -> executor. Everything a request can get wrong is found here."""

    def __init__(
        self,
        lanes: ResolverLanes,
        ledger: Ledger,
        rules: SpecRules,
        around: Surroundings,
    ) -> None:
        self._lanes = lanes
        self._ledger = ledger
        self._rules = rules
        self._preparer = around.engine.preparer
        self._clock = around.clock
        self._telemetry = around.telemetry
        self._on_full = partial(around.telemetry.bound_reached, Bound.EXECUTOR_LANE)
        self._under_way: Unprepared | None = None

    async def run(self) -> None:
        """Until intake has closed its end and nobody is parked any more."""
        async with self._lanes.executor, anyio.create_task_group() as loops:
            loops.start_soon(self._serve_parked)
            async with self._lanes.inbox, self._lanes.park:
                async for admitted in receive_all(self._lanes.inbox):
                    resolved = self.on_admitted(admitted)
                    if resolved is not None:
                        await send(self._lanes.executor, resolved, self._on_full)

    async def _serve_parked(self) -> None:
        async with self._lanes.parked:
            async for unprepared in receive_all(self._lanes.parked):
                self._under_way = unprepared
                resolved = await self.on_unprepared(unprepared)
                self._under_way = None
                if resolved is not None:
                    await send(self._lanes.executor, resolved, self._on_full)

    def on_admitted(self, admitted: Admitted) -> Resolved | None:
        """Resolve, park, or refuse with the name of the field. A request that has ended is dropped."""
        ticket = self._ledger.find(admitted.engine_id)
        if ticket is None:
            return None
        try:
            spec = self._rules.resolve(admitted.request)
            prepared = self._prepared(spec)
            if prepared is None:
                self._park(Unprepared(ticket.engine_id, spec, self._clock()))
                return None
        except RequestError as exc:
            self._ledger.refuse(ticket, exc)
            return None
        return self._resolved(ticket, prepared)

    async def on_unprepared(self, unprepared: Unprepared) -> Resolved | None:
        """Let the engine prepare the spec. Only the request at hand can fail by it.

        A request that has ended, before or meanwhile, is dropped.
        """
        ticket = self._ledger.find(unprepared.engine_id)
        if ticket is None or self._preparer is None:
            return None
        try:
            spec = self._prepared(unprepared.spec) or await self._preparer.prepare(unprepared.spec)
        except RequestError as exc:
            self._ledger.refuse(ticket, exc)
            return None
        except (EngineShutdown, InternalError):
            raise
        except Exception as exc:
            text = f"the engine could not prepare the request ({type(exc).__name__})"
            error = GenerationFailed(text, FailureCause.PREPARE)
            self._ledger.end(ticket, Outcome.FAILED, Terminal(error=error))
            return None
        return None if ticket.is_ended else self._resolved(ticket, spec)

    def _prepared(self, spec: GenerationSpec) -> GenerationSpec | None:
        """The spec, if nothing is to be prepared, or all of it is already."""
        if spec.guided is None and not spec.processors and spec.handoff is None:
            return spec
        return None if self._preparer is None else self._preparer.find(spec)

    def _park(self, unprepared: Unprepared) -> None:
        oldest = self._under_way
        if oldest is not None and unprepared.parked_s - oldest.parked_s >= LONGEST_PARKED_S:
            raise _preparing_full(f"the one under way has waited for {LONGEST_PARKED_S:g} s")
        try:
            self._lanes.park.send_nowait(unprepared)
        except anyio.WouldBlock:
            raise _preparing_full("too many are waiting") from None

    def _resolved(self, ticket: Ticket, spec: GenerationSpec) -> Resolved:
        ticket.n = spec.n
        ticket.sampling, ticket.max_tokens = spec.sampling, spec.stop.max_tokens
        ticket.is_movable = spec.is_movable
        if spec.output.logprobs is not None or spec.output.prompt_logprobs is not None:
            ticket.outbox.logprobs = LogprobWriter()
        ticket.times.resolved_s = self._clock()
        ticket.advance(Phase.WAITING)
        return Resolved(ticket.engine_id, spec)


def _preparing_full(why: str) -> Overloaded:
    return Overloaded("preparing_full", f"grammars and logits processors are being prepared: {why}")
