"""Promises of the resolver: what is wrong is refused here, what goes on can no longer be wrong."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from actors.outbox import Terminal
from actors.resolver import ResolverLanes, SpecResolver
from actors.resolving import SpecRules
from actors.surroundings import Surroundings
from protocols.bounds import Bound
from protocols.engine import EngineCapabilities
from protocols.errors import EngineShutdown, InvalidRequest
from protocols.messages import Admitted, Resolved, Unprepared
from protocols.requests import decode_request
from protocols.telemetry import Outcome, Phase
from tests.actors.office import Office, closed_lane, last_word
from tests.doubles.callers import PROMPT, wire_request
from tests.doubles.engines import ScriptedEngine, engine_info


class Desk:
    """A resolver whose handler is called by hand."""

    def __init__(self, lanes: ResolverLanes | None = None) -> None:
        self.office = Office()
        rules = SpecRules("double", EngineCapabilities(max_n=2), engine_info(), capacity=2)
        if lanes is None:
            lanes = ResolverLanes(closed_lane()[1], closed_lane()[0], closed_lane()[0], closed_lane()[1])
        self.resolver = SpecResolver(
            lanes,
            self.office.ledger,
            rules,
            Surroundings(
                engine=ScriptedEngine(),
                telemetry=self.office.listener,
                clock=self.office.clock,
                on_crash=lambda _: None,
            ),
        )

    def bring(self, **options: Any) -> tuple[Any, Any]:
        ticket = self.office.open()
        admitted = Admitted(ticket.engine_id, decode_request(wire_request(**options)))
        return ticket, self.resolver.on_admitted(admitted)


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.mark.anyio
async def test_a_full_executor_lane_makes_it_wait_and_is_counted() -> None:
    """Once for the message that had to wait; all arrive, in order."""
    to_resolver, inbox = anyio.create_memory_object_stream[Admitted](3)
    to_executor, executor = anyio.create_memory_object_stream[Resolved](1)
    desk = Desk(ResolverLanes(inbox, to_executor, *anyio.create_memory_object_stream[Unprepared](1)))
    tickets = [desk.office.open() for _ in range(2)]
    async with anyio.create_task_group() as tasks, executor:
        tasks.start_soon(desk.resolver.run)
        async with to_resolver:
            for ticket in tickets:
                to_resolver.send_nowait(Admitted(ticket.engine_id, decode_request(wire_request())))
            await anyio.wait_all_tasks_blocked()
            assert desk.office.listener.bounds == {Bound.EXECUTOR_LANE: 1}
        assert [resolved.engine_id async for resolved in executor] == [1, 2]
    assert desk.office.listener.bounds == {Bound.EXECUTOR_LANE: 1}


def test_a_resolved_request_waits_for_a_slot(desk: Desk) -> None:
    """With its spec, its time, and what the drain must know of it."""
    desk.office.now_s = 102.0
    ticket, resolved = desk.bring(max_tokens=7, n=2)
    assert resolved.spec.prompt == PROMPT
    assert resolved.spec.stop.max_tokens == 7
    assert (ticket.n, ticket.is_movable, ticket.phase) == (2, False, Phase.WAITING)
    assert ticket.times.resolved_s == 102.0


def test_a_request_that_cannot_be_served_is_refused_and_counted(desk: Desk) -> None:
    """With the field's name for its caller; the executor never hears of it."""
    ticket, resolved = desk.bring(logprobs=1)
    assert resolved is None
    assert ticket.outcome is Outcome.REFUSED
    assert isinstance(last_word(ticket).error, InvalidRequest)
    assert desk.office.listener.rejections == {"invalid_request": 1}


def test_a_request_that_has_ended_is_dropped(desk: Desk) -> None:
    """A cancel may overtake its own request."""
    ticket = desk.office.open()
    desk.office.ledger.end(ticket, Outcome.INTERRUPTED, Terminal(error=EngineShutdown("x")))
    assert desk.resolver.on_admitted(Admitted(ticket.engine_id, decode_request(wire_request()))) is None
