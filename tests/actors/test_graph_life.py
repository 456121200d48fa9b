"""Promises of the graph's life: one death path, everybody ended, the engine stopped, in this order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest

from actors.cancellation import CancellationMonitor
from actors.drain import DrainCoordinator, DrainLadder
from actors.executor import Executor
from actors.graph import open_graph
from actors.intake import RequestIntake
from actors.resolver import SpecResolver
from actors.settings import GraphSettings
from actors.streamer import ChunkStreamer
from actors.surroundings import Surroundings
from protocols.errors import EngineDead, EngineShutdown, EngineStartError
from protocols.telemetry import Outcome, WorkerState
from tests.actors.deaths import causes, check_one_death, crash
from tests.doubles.engines import (
    DiesAtStep,
    FailsToStart,
    NeverFirstToken,
    RefusesToStop,
    ScriptedEngine,
    SlowStart,
    SteppingEngine,
)
from tests.doubles.listeners import RecordingTelemetry

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.graph import Graph
    from tests.actors.world import Visit, World
    from tests.conftest import OpenWorld

pytestmark = pytest.mark.anyio


class TestDeadEngine:
    @pytest.mark.parametrize("step", [1, 2, 7])
    async def test_every_live_request_gets_engine_shutdown(self, open_world: OpenWorld, step: int) -> None:
        """Running, waiting and just arrived; those with tokens keep them first."""

        async def ask(world: World) -> None:
            for _ in range(3):
                world.ask(max_tokens=100)

        world = await crash(open_world, ask, DiesAtStep(step, max_num_seqs=1))
        check_one_death(world, EngineDead)
        for visit in world.visits:
            answer = await visit.answer()
            assert isinstance(answer.error, EngineShutdown)
            assert answer.tokens == list(range(1000, 1000 + len(answer.tokens)))
        assert world.outcomes() == {Outcome.FAILED: 3}

    async def test_the_cause_is_kept(self, open_world: OpenWorld) -> None:
        """What killed the engine is behind what the crash reports."""

        async def die(world: World) -> None:
            world.engine.die(RuntimeError("cuda is gone"))

        (cause,) = causes((await crash(open_world, die)).crashes[0])
        assert str(cause.__cause__) == "cuda is gone"

    async def test_the_crash_is_told_while_everybody_is_still_there(self, open_world: OpenWorld) -> None:
        """The worker must leave discovery before its clients hear of it, and before the engine is stopped."""
        seen: list[tuple[int, int]] = []

        async def die(world: World) -> None:
            world.look_at_crash = lambda: seen.append((world.graph.ledger.live_count, world.engine.stops))
            await world.ask_settled()
            world.engine.die()

        await crash(open_world, die)
        assert seen == [(1, 0)]

    async def test_steps_under_way_reach_their_reader_or_nobody(self, open_world: OpenWorld) -> None:
        """What was said before the death comes whole or not at all, and then the word that moves it."""

        async def die(world: World) -> None:
            visit = await world.ask_settled()
            world.engine.say(visit.id, 5)
            world.engine.die()

        world = await crash(open_world, die)
        answer = await world.visits[0].answer()
        assert answer.tokens in ([], [5])
        assert isinstance(answer.error, EngineShutdown)


def broken(*_: object) -> None:
    raise ZeroDivisionError("a bug")


ACTORS: list[tuple[type[Any], str]] = [
    (RequestIntake, "on_submit"),
    (SpecResolver, "on_admitted"),
    (Executor, "on_resolved"),
    (Executor, "on_step"),
    (Executor, "on_control"),
    (ChunkStreamer, "on_step"),
    (CancellationMonitor, "on_control"),
    (CancellationMonitor, "on_sweep"),
    (DrainCoordinator, "_drain"),
]


class TestBrokenActor:
    @pytest.mark.parametrize(("actor", "handler"), ACTORS)
    async def test_any_actor_that_raises_takes_the_same_way(
        self, open_world: OpenWorld, monkeypatch: pytest.MonkeyPatch, actor: type[Any], handler: str
    ) -> None:
        """Never half alive: one crash, every request ended, the engine stopped."""

        async def live(world: World) -> None:
            running = world.ask(max_tokens=1000)
            await running.reader.read()
            monkeypatch.setattr(actor, handler, broken)
            world.ask(max_tokens=1000)
            leaving = world.ask(max_tokens=1000)
            await leaving.leave()
            await running.leave()
            now_s = anyio.current_time()
            world.graph.drain.begin(DrainLadder(started_s=now_s, move_at_s=now_s + 5, end_at_s=now_s + 5))

        check_one_death(await crash(open_world, live, SteppingEngine()), ZeroDivisionError)

    async def test_a_reader_never_meets_an_exception_of_a_channel(
        self, open_world: OpenWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Between the death of the executor and the end of the graph, reading stays typed."""

        async def read_slowly(graph: Graph, visit: Visit) -> None:
            while not visit.ticket.outbox.is_drained:
                await visit.reader.read()
                graph.reader_gone(visit.ticket)
                graph.cancel_context(visit.caller.context_id)
                await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as tasks:

            async def live(world: World) -> None:
                for visit in [await world.ask_settled(max_tokens=100) for _ in range(8)]:
                    world.engine.say(visit.id, *range(8))
                await world.settle()
                monkeypatch.setattr(Executor, "on_control", broken)
                for visit in world.visits:
                    tasks.start_soon(read_slowly, world.graph, visit)

            world = await crash(open_world, live, outbox_tokens=8, chunk_tokens=1)
        assert all(visit.reader.terminals == 1 for visit in world.visits)


class TestClosing:
    async def test_a_graph_that_closes_ends_whoever_is_left(self, open_world: OpenWorld) -> None:
        """In every phase, with the word that moves requests; the engine is stopped after them."""
        async with open_world(NeverFirstToken(max_num_seqs=1)) as world:
            await world.ask_settled()
            await world.ask_settled()
        for visit in world.visits:
            assert isinstance((await visit.answer()).error, EngineShutdown)
        assert world.crashes == []
        assert world.engine.stops == 1

    async def test_a_cancelled_body_closes_all_the_same(self, open_world: OpenWorld) -> None:
        """The supervisor's task may be cancelled at any time."""
        with anyio.move_on_after(5):
            async with open_world(SteppingEngine()) as world:
                visit = world.ask(max_tokens=100_000)
                await anyio.sleep_forever()
        assert world.engine.stops == 1
        assert world.crashes == []
        assert isinstance((await visit.answer()).error, EngineShutdown)

    async def test_an_engine_that_does_not_stop_is_given_up(self) -> None:
        """Bounded: the way out waits for it no longer than it says."""
        engine = RefusesToStop()
        start_s = anyio.current_time()
        async with open_graph(GraphSettings(engine_stop_s=8.0), _around(engine, RecordingTelemetry())):
            pass
        assert anyio.current_time() - start_s == pytest.approx(8.0)


class TestStarting:
    async def test_an_engine_that_cannot_start_is_stopped(self) -> None:
        """Its own error comes out; nobody speaks of a crash."""
        engine, listener = FailsToStart(), RecordingTelemetry()
        crashes: list[BaseException] = []
        with pytest.raises(EngineStartError, match="nowhere"):
            async with open_graph(GraphSettings(), _around(engine, listener, crashes.append)):
                raise AssertionError("the graph is open")
        assert (engine.stops, crashes) == (1, [])
        assert listener.states == [WorkerState.LOADING, WorkerState.STOPPING]

    async def test_a_start_that_is_cancelled_is_stopped(self) -> None:
        """Loading ends, the engine is stopped, the cancel goes on its way."""
        engine = SlowStart(600.0)
        with anyio.move_on_after(5) as scope:
            async with open_graph(GraphSettings(), _around(engine, RecordingTelemetry())):
                raise AssertionError("the graph is open")
        assert scope.cancelled_caught
        assert engine.stops == 1

    async def test_states_tell_the_life(self, open_world: OpenWorld) -> None:
        """Loading, serving, stopping."""
        async with open_world() as world:
            pass
        assert world.listener.states == [WorkerState.LOADING, WorkerState.SERVING, WorkerState.STOPPING]


def _around(
    engine: ScriptedEngine,
    listener: RecordingTelemetry,
    on_crash: Callable[[BaseException], None] = lambda _: None,
) -> Surroundings:
    return Surroundings(engine=engine, telemetry=listener, clock=anyio.current_time, on_crash=on_crash)
