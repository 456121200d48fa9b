"""Promises about an engine that is silent: a hung one ends the worker in time, a busy one never."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from protocols.errors import EngineDead, EngineShutdown
from protocols.steps import EngineId, FinishReason
from protocols.telemetry import Outcome
from tests.actors.deaths import check_one_death, crash
from tests.doubles.engines import ScriptedEngine, guiding_engine

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.actors.world import World
    from tests.conftest import OpenWorld

pytestmark = pytest.mark.anyio

TIMEOUT_S = 30.0
# So long that any engine that is silent would have been found out many times over.
LONG_S = 40 * TIMEOUT_S
PATIENT = {"hang_timeout_s": TIMEOUT_S, "stall_timeout_s": 1e6}


class LetsGo(ScriptedEngine):
    """Confirms aborts, and computes nothing for it."""

    def abort(self, engine_id: EngineId) -> None:
        before = self.progress
        super().abort(engine_id)
        self.progress = before


async def warm_up(world: World) -> None:
    """The worker's first step, before which nobody looks."""
    first = await world.ask_settled()
    world.engine.finish(first.id)
    await first.answer()


async def compute(engine: ScriptedEngine, seconds: float, sign_every_s: float) -> None:
    """One long step: layer after layer, and no step before all of them are done."""
    ends_s = anyio.current_time() + seconds
    while anyio.current_time() < ends_s:
        await anyio.sleep(sign_every_s)
        engine.progress += 1


class TestNoHang:
    @pytest.mark.parametrize("sign_every_s", [0.01, 3.0, 0.9 * TIMEOUT_S])
    async def test_one_step_of_many_timeouts(self, open_world: OpenWorld, sign_every_s: float) -> None:
        """A long prompt that is computed in one piece, on a slow machine: its answer comes whole."""
        async with open_world(ScriptedEngine(), **PATIENT) as world:
            await warm_up(world)
            visit = await world.ask_settled()
            await compute(world.engine, LONG_S / (10 if sign_every_s < 1 else 1), sign_every_s)
            world.engine.finish(visit.id, FinishReason.STOP, [5, 6])
            assert (await visit.answer()).tokens == [5, 6]
            assert world.crashes == []

    async def test_a_client_that_leaves_a_long_step(self, open_world: OpenWorld) -> None:
        """The abort is confirmed when the step is over; until then it is owed, and no hang."""
        async with open_world(ScriptedEngine(is_confirming=False), **PATIENT) as world:
            await warm_up(world)
            visit = await world.ask_settled()
            await visit.leave()
            await compute(world.engine, LONG_S, 5.0)
            world.engine.finish(visit.id, FinishReason.CANCELLED)
            await world.settle()
            assert world.graph.executor.is_idle
            assert world.crashes == []

    async def test_a_grammar_that_takes_long_to_prepare(self, open_world: OpenWorld) -> None:
        """The engine has never heard of the request: it owes nothing."""
        engine, preparer = guiding_engine()
        async with open_world(engine, **PATIENT) as world:
            await warm_up(world)
            visit = await world.ask_settled(guided_decoding={"regex": "a+"})
            await anyio.sleep(LONG_S)
            preparer.release()
            await world.settle()
            world.engine.finish(visit.id, FinishReason.STOP, [5])
            assert (await visit.answer()).tokens == [5]
            assert world.crashes == []

    async def test_a_mask_that_takes_long(self, open_world: OpenWorld) -> None:
        """Foreign code of the only request is late: the engine says so by steps without a word in them."""
        async with open_world(ScriptedEngine(), **PATIENT) as world:
            await warm_up(world)
            visit = await world.ask_settled()
            ends_s = anyio.current_time() + LONG_S
            while anyio.current_time() < ends_s:
                await anyio.sleep(0.25)
                world.engine.emit()
            world.engine.finish(visit.id, FinishReason.STOP, [5])
            assert (await visit.answer()).tokens == [5]
            assert world.crashes == []

    async def test_the_first_request_of_all(self, open_world: OpenWorld) -> None:
        """Kernels compile, caches fill, and nothing at all is seen of that."""
        async with open_world(ScriptedEngine(), **PATIENT) as world:
            visit = await world.ask_settled()
            await anyio.sleep(LONG_S)
            world.engine.finish(visit.id, FinishReason.STOP, [5])
            assert (await visit.answer()).tokens == [5]
            assert world.crashes == []

    @pytest.mark.parametrize("engine_queue", [0, 1, 2])
    async def test_readers_that_all_sleep(self, open_world: OpenWorld, engine_queue: int) -> None:
        """No step is owed while all that run are held back, whoever waits for them inside or outside."""
        bounds = {"outbox_tokens": 4, "engine_queue": engine_queue}
        async with open_world(ScriptedEngine(max_num_seqs=2), **PATIENT, **bounds) as world:
            await warm_up(world)
            sleepers = [await world.ask_settled() for _ in range(2)]
            for visit in sleepers:
                world.engine.say(visit.id, 1, 2, 3, 4)
            behind = [await world.ask_settled() for _ in range(2)]
            assert len(world.engine.paused) == 2
            assert world.graph.executor.running_sequences == 2 + engine_queue
            await anyio.sleep(LONG_S)
            for visit in sleepers:
                world.engine.finish(visit.id)
            await world.settle()
            for visit in behind:
                world.engine.finish(visit.id)
            for visit in [*sleepers, *behind]:
                assert (await visit.answer()).finish_reasons == ["stop"]
            assert world.crashes == []

    async def test_clients_that_leave_before_their_first_token(self, open_world: OpenWorld) -> None:
        """One after the other, for long, and the engine lets each of them go: it owed nobody for long."""
        async with open_world(LetsGo(), **PATIENT) as world:
            await warm_up(world)
            for _ in range(12):
                visit = await world.ask_settled()
                await anyio.sleep(0.9 * TIMEOUT_S)
                await visit.leave()
                await world.settle()
            assert world.crashes == []

    async def test_nothing_to_do(self, open_world: OpenWorld) -> None:
        """An idle worker may be idle for ever, and serves the next request."""
        async with open_world(ScriptedEngine(), **PATIENT) as world:
            for _ in range(3):
                await warm_up(world)
                await anyio.sleep(LONG_S)
            assert world.crashes == []


async def hang_at_prefill(world: World) -> None:
    await world.ask_settled()


async def hang_at_decode(world: World) -> None:
    visit = await world.ask_settled()
    world.engine.say(visit.id, 5)
    await visit.reader.read()


async def hang_in_a_long_step(world: World) -> None:
    await world.ask_settled()
    await compute(world.engine, LONG_S, 5.0)


async def hang_with_aborts_owed(world: World) -> None:
    for visit in [await world.ask_settled() for _ in range(2)]:
        await visit.leave()
    await world.settle()


async def hang_with_an_abort_owed_by_a_paused_one(world: World) -> None:
    visit = await world.ask_settled()
    world.engine.say(visit.id, *range(8))
    await world.settle()
    assert visit.id in world.engine.paused
    await anyio.sleep(10 * TIMEOUT_S)
    await visit.leave()
    await world.settle()


async def hang_beside_sleepers(world: World) -> None:
    sleeper = await world.ask_settled()
    world.engine.say(sleeper.id, *range(8))
    await world.settle()
    await anyio.sleep(10 * TIMEOUT_S)
    await world.ask_settled()


async def hang_after_a_sleeper_woke(world: World) -> None:
    sleeper = await world.ask_settled()
    world.engine.say(sleeper.id, *range(8))
    await world.settle()
    await anyio.sleep(10 * TIMEOUT_S)
    while sleeper.id in world.engine.paused:
        await sleeper.reader.read()
        await world.settle()


class TestHang:
    @pytest.mark.parametrize(
        "hang",
        [
            hang_at_prefill,
            hang_at_decode,
            hang_in_a_long_step,
            hang_with_aborts_owed,
            hang_with_an_abort_owed_by_a_paused_one,
            hang_beside_sleepers,
            hang_after_a_sleeper_woke,
        ],
    )
    async def test_it_is_noticed_in_time(
        self, open_world: OpenWorld, hang: Callable[[World], Awaitable[None]]
    ) -> None:
        """Work in hand and no sign of life: one death path, between the time-out and a tenth more."""
        hung_s = 0.0

        async def live(world: World) -> None:
            nonlocal hung_s
            await warm_up(world)
            # Between two looks.
            await anyio.sleep(1.7)
            await hang(world)
            hung_s = anyio.current_time()

        engine = ScriptedEngine(is_confirming=False)
        world = await crash(open_world, live, engine, **PATIENT, outbox_tokens=8, chunk_tokens=1)
        # The last sign of a long step comes up to 5 s before its end.
        assert TIMEOUT_S - 5.0 <= anyio.current_time() - hung_s <= TIMEOUT_S * 1.1 + 1e-6
        check_one_death(world, EngineDead)
        for visit in world.visits[1:]:
            answer = await visit.answer()
            assert isinstance(answer.error, EngineShutdown) or visit.ticket.outcome is Outcome.CANCELLED

    async def test_letting_others_go_is_no_sign_for_those_who_stay(self, open_world: OpenWorld) -> None:
        """Clients come and go, the engine confirms each of them, who stays gets nothing: a hang."""
        stuck_s = 0.0

        async def live(world: World) -> None:
            nonlocal stuck_s
            await warm_up(world)
            await world.ask_settled()
            stuck_s = anyio.current_time()
            for _ in range(int(2 * TIMEOUT_S)):
                visit = await world.ask_settled()
                await anyio.sleep(1.0)
                await visit.leave()

        check_one_death(await crash(open_world, live, LetsGo(), **PATIENT), EngineDead)
        assert TIMEOUT_S <= anyio.current_time() - stuck_s <= TIMEOUT_S * 1.1 + 1e-6

    async def test_signs_of_strangers_are_none(self, open_world: OpenWorld) -> None:
        """A late word to an engine that hangs changes nothing: only what it does itself counts."""

        async def live(world: World) -> None:
            await warm_up(world)
            await world.ask_settled()
            while True:
                await anyio.sleep(1.0)
                world.engine.resume(EngineId(2**40))
                world.graph.cancel_context("stranger")

        check_one_death(await crash(open_world, live, ScriptedEngine(), **PATIENT), EngineDead)
