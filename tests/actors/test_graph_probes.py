"""Promises to whoever asks for the worker's health: an engine that lives answers in time, no other does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from actors.drain import DrainLadder
from protocols.errors import Overloaded
from protocols.steps import FinishReason
from protocols.telemetry import Outcome
from tests.doubles.engines import NeverFirstToken, ScriptedEngine, SteppingEngine

if TYPE_CHECKING:
    from tests.actors.world import Visit, World
    from tests.conftest import OpenWorld

pytestmark = pytest.mark.anyio

# The framework gives its probe up after this; the engine's step is not much shorter.
PATIENCE_S, LONG_STEP_S = 3.0, 2.5
SLOTS = 4
HANG_S = 30.0


async def probe(world: World) -> Visit:
    """One probe, read for as long as the framework waits. It stays behind when it was not answered."""
    visit = world.ask(max_tokens=1, _HEALTH_CHECK=True)
    with anyio.move_on_after(PATIENCE_S):
        await visit.answer()
    return visit


def is_good(visit: Visit) -> bool:
    return visit.ticket.outcome is Outcome.COMPLETED


@pytest.mark.parametrize("engine_queue", [0, 32])
@pytest.mark.parametrize("users", [1, SLOTS - 1, SLOTS, SLOTS + 2])
async def test_long_steps_are_healthy(open_world: OpenWorld, users: int, engine_queue: int) -> None:
    """Free slots, none, and users waiting inside or outside: every probe is answered at once, uncounted."""
    engine = SteppingEngine(SLOTS, step_s=LONG_STEP_S)
    async with open_world(engine, max_live=16, engine_queue=engine_queue) as world:
        await world.ask(max_tokens=1).answer()
        visits = [world.ask(max_tokens=8) for _ in range(users)]
        await world.settle()
        submitted = len(engine.submitted)
        for _ in range(30):
            start_s = anyio.current_time()
            assert is_good(await probe(world))
            assert anyio.current_time() == start_s
            await anyio.sleep(0.6)
        assert len(engine.submitted) == submitted
        assert {(await visit.answer()).finish_reasons[0] for visit in visits} == {"length"}
        assert world.outcomes() == {Outcome.COMPLETED: users + 1}
        assert world.listener.bounds.total() == (users > SLOTS and not engine_queue) * (users - SLOTS)


async def test_probes_in_a_burst_on_an_engine_at_work(open_world: OpenWorld) -> None:
    """Asked again before the last one is back: the one place for a probe at work is not theirs."""
    async with open_world(SteppingEngine(SLOTS, step_s=LONG_STEP_S)) as world:
        await world.ask(max_tokens=1).answer()
        submitted = await world.ask_settled(max_tokens=3, _HEALTH_CHECK=True)
        await world.ask_settled(max_tokens=5)
        others = [world.ask(_HEALTH_CHECK=True) for _ in range(5)]
        await world.settle()
        assert all(is_good(visit) for visit in others)
        assert not submitted.ticket.is_ended
        # It has users beside it now: the step that is due answers it, not its own third one.
        await anyio.sleep(LONG_STEP_S)
        await world.settle()
        assert is_good(submitted)


async def test_an_idle_engine_does_the_work(open_world: OpenWorld) -> None:
    """Nothing but its own token answers the probe, however lately the engine has moved."""
    async with open_world(ScriptedEngine(SLOTS)) as world:
        first = await world.ask_settled()
        world.engine.finish(first.id)
        visit = await world.ask_settled(_HEALTH_CHECK=True)
        second = await world.ask_settled(_HEALTH_CHECK=True)
        assert isinstance((await second.answer()).error, Overloaded)
        assert not visit.ticket.is_ended
        world.engine.finish(visit.id, FinishReason.LENGTH, [7])
        assert (await visit.answer()).tokens == [7]


@pytest.mark.parametrize("users", [1, SLOTS])
async def test_a_hung_engine_fails_its_probes(open_world: OpenWorld, users: int) -> None:
    """From the second look after its last sign of life on, with and without a free slot, to the end."""
    engine = ScriptedEngine(SLOTS, is_confirming=False)
    async with open_world(engine, max_live=16, hang_timeout_s=HANG_S, stall_timeout_s=1e6) as world:
        visits = [await world.ask_settled() for _ in range(users)]
        engine.say(visits[0].id, 1)
        await world.settle()
        hung_s = anyio.current_time()
        bad_s: list[float] = []
        while anyio.current_time() - hung_s < 0.9 * HANG_S:
            at_s = anyio.current_time() - hung_s
            visit = await probe(world)
            if not is_good(visit):
                bad_s.append(at_s)
                await visit.leave()
            await anyio.sleep(0.1)
        assert bad_s
        assert bad_s[0] <= 0.2 * HANG_S + 0.1
        assert len(engine.submitted) == users
        # It was a long silence and no hang: whoever asks then is told so.
        held = await world.ask_settled(_HEALTH_CHECK=True)
        engine.say(visits[0].id, 2)
        await world.settle()
        assert is_good(held)
        for visit in visits:
            engine.finish(visit.id)
        await world.settle()


async def test_signs_of_life_within_a_step_answer_too(open_world: OpenWorld) -> None:
    """One step of a minute whose progress moves: healthy all the time."""
    engine = ScriptedEngine(SLOTS)
    async with open_world(engine, hang_timeout_s=HANG_S, stall_timeout_s=1e6) as world:
        user = await world.ask_settled()
        engine.say(user.id, 1)
        await world.settle()
        for _ in range(60):
            engine.progress += 1
            assert is_good(await probe(world))
            await anyio.sleep(1.0)
        engine.finish(user.id)
        await user.answer()


async def test_a_drain_waits_for_no_probe_and_counts_none(open_world: OpenWorld) -> None:
    """Nobody but a probe is live: the drain is over at once, and no figure tells of it."""
    async with open_world(NeverFirstToken()) as world:
        visit = await world.ask_settled(_HEALTH_CHECK=True)
        now_s = anyio.current_time()
        report = await world.graph.drain_by(
            DrainLadder(started_s=now_s, move_at_s=now_s + 7, end_at_s=now_s + 9)
        )
        assert (report.live_at_start, report.interrupted, report.seconds) == (0, 0, 0.0)
        assert visit.ticket.outcome is None
        visit.close()
        await world.settle()
        assert visit.ticket.is_ended
        assert world.listener.cancellations.total() == 0


async def test_a_probe_that_is_live_when_the_graph_closes_is_not_counted(open_world: OpenWorld) -> None:
    """It is told, as everybody is; nobody's figures show it."""
    async with open_world(NeverFirstToken()) as world:
        visit = await world.ask_settled(_HEALTH_CHECK=True)
    assert visit.ticket.outcome is Outcome.FAILED
    assert world.listener.cancellations.total() == 0
