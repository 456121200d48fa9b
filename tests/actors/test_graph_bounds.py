"""Promises of the graph's bounds: reaching one is counted as that one, and costs nobody anything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from actors.graph import open_graph
from actors.lanes import DATA_LANE, STEP_LANE
from actors.settings import GraphSettings
from actors.surroundings import Surroundings
from actors.waiting_room import PASSES_ALLOWED, WaitingRoom
from protocols.bounds import Bound
from protocols.messages import Resolved
from protocols.spec import GenerationSpec, StopRules
from protocols.steps import Delta, EngineId
from protocols.telemetry import Outcome
from tests.doubles.engines import RefusesToStop, ScriptedEngine, SteppingEngine
from tests.doubles.listeners import RecordingTelemetry

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from tests.actors.world import World

    OpenWorld = Callable[..., AbstractAsyncContextManager[World]]

pytestmark = pytest.mark.anyio


async def test_a_served_request_reaches_none(open_world: OpenWorld) -> None:
    """A counter that moves says something."""
    async with open_world(SteppingEngine()) as world:
        visits = [world.ask(max_tokens=3) for _ in range(8)]
        for visit in visits:
            await visit.answer()
        assert world.listener.bounds == {}


async def test_a_reader_that_is_behind_is_counted_each_time_it_is_held(open_world: OpenWorld) -> None:
    """Twice held is two, however many tokens wait; its neighbour is in no count."""
    async with open_world(SteppingEngine(step_s=0.01), outbox_tokens=8, chunk_tokens=8) as world:
        slow, quick = world.ask(max_tokens=30), world.ask(max_tokens=30)
        await quick.answer()
        assert world.listener.bounds == {Bound.OUTBOX: 1}
        await slow.reader.read()
        await anyio.sleep(1.0)
        assert world.listener.bounds == {Bound.OUTBOX: 2}
        await slow.answer()
        assert world.engine.ids_of("pause") == [slow.id] * 2


async def test_a_burst_longer_than_the_resolvers_lane_makes_the_intake_wait(open_world: OpenWorld) -> None:
    """Counted as that lane's; everybody is served all the same."""
    requests = 2 * DATA_LANE + 2
    async with open_world(SteppingEngine(max_num_seqs=requests, step_s=0.0)) as world:
        visits = [world.ask(max_tokens=1) for _ in range(requests)]
        await world.settle()
        for visit in visits:
            await visit.answer()
        assert world.listener.bounds.keys() == {Bound.RESOLVER_LANE}
        assert world.outcomes() == {Outcome.COMPLETED: requests}


async def test_steps_that_come_faster_than_they_are_streamed_are_held_back(open_world: OpenWorld) -> None:
    """The executor waits and says so; no token is lost."""
    engine = ScriptedEngine()
    async with open_world(engine) as world:
        visit = await world.ask_settled(max_tokens=1000)
        for token in range(4 * STEP_LANE):
            engine.say(visit.id, token)
        engine.finish(visit.id)
        await world.settle()
        assert world.listener.bounds.keys() == {Bound.STREAMER_LANE}
        assert (await visit.answer()).tokens == list(range(4 * STEP_LANE))


async def test_a_request_that_has_to_wait_for_a_slot_is_counted_once(open_world: OpenWorld) -> None:
    """Also one that needs more slots than are free; not the one for whom there was room."""
    engine = ScriptedEngine(max_num_seqs=2)
    async with open_world(engine) as world:
        first, wide = await world.ask_settled(), await world.ask_settled(n=2)
        assert world.listener.bounds == {Bound.ENGINE_SEQUENCES: 1}
        await world.ask_settled()
        assert world.listener.bounds == {Bound.ENGINE_SEQUENCES: 2}
        for visit in (first, wide, world.visits[2]):
            engine.emit(Delta(visit.id, [], is_last=True, error="enough"))
            await world.settle()
        assert world.listener.bounds == {Bound.ENGINE_SEQUENCES: 2}


async def test_a_request_that_was_passed_for_the_last_time_is_counted() -> None:
    """Once, at the last pass that is allowed."""
    listener = RecordingTelemetry()
    room = WaitingRoom(listener.bound_reached)
    for number in range(PASSES_ALLOWED + 1):
        spec = GenerationSpec(prompt=(1,), stop=StopRules(max_tokens=1), n=1 if number else 2)
        room.add(Resolved(EngineId(number), spec))
    for _ in range(PASSES_ALLOWED - 1):
        assert room.next_fitting(1) is not None
    assert listener.bounds == {}
    assert room.next_fitting(1) is not None
    assert room.next_fitting(1) is None
    assert listener.bounds == {Bound.OVERTAKING: 1}


async def test_an_engine_that_is_left_behind_is_counted() -> None:
    """One that stops in time is not."""
    counted: list[dict[Bound, int]] = []
    for engine in (RefusesToStop(), ScriptedEngine()):
        listener = RecordingTelemetry()
        around = Surroundings(
            engine=engine, telemetry=listener, clock=anyio.current_time, on_crash=lambda _: None
        )
        async with open_graph(GraphSettings(engine_stop_s=8.0), around):
            pass
        counted.append(dict(listener.bounds))
    assert counted == [{Bound.ENGINE_STOP: 1}, {}]
