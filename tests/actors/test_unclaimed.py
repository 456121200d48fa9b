"""A KV cache that was handed over is fetched, whatever becomes of the request it belongs to."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest

from actors.drain import DrainLadder
from actors.unclaimed import MOST_UNCLAIMED, has_handoff
from protocols.bounds import Bound
from protocols.engine import EngineCapabilities
from protocols.errors import InvalidRequest
from protocols.spec import GenerationSpec, Stage
from protocols.steps import EngineId, FinishReason
from protocols.telemetry import Outcome
from tests.actors.deaths import crash
from tests.doubles.callers import PROMPT, FakeCaller, wire_request
from tests.doubles.engines import ScriptedEngine

if TYPE_CHECKING:
    from tests.actors.world import Visit, World
    from tests.conftest import OpenWorld

pytestmark = pytest.mark.anyio

HANDED = {"opaque_state": "AAEC"}
GONE = Outcome.CANCELLED


class Reads:
    """Reads every hand-off but those that say they cannot be."""

    def find(self, spec: GenerationSpec) -> GenerationSpec:
        if "broken" in spec.handoff:
            raise InvalidRequest("prefill_result.disaggregated_params.broken", 1, "nothing")
        return spec

    async def prepare(self, spec: GenerationSpec) -> GenerationSpec:
        raise AssertionError("every hand-off is read at once")


def decode_engine(max_num_seqs: int = 8) -> ScriptedEngine:
    """It confirms an abort when the test says so: with the first token."""
    can = EngineCapabilities(can_pause=True, max_n=8, role=Stage.DECODE)
    engine = ScriptedEngine(max_num_seqs, capabilities=can, is_confirming=False)
    engine.preparer = Reads()
    return engine


def handed(**options: Any) -> dict[str, Any]:
    """A request as the prefill router sends it."""
    return wire_request(**options) | {"prefill_result": {"disaggregated_params": HANDED}}


def left() -> FakeCaller:
    """One who had gone before the request came."""
    caller = FakeCaller()
    caller.leave()
    return caller


class TestGone:
    async def test_before_anybody_looked_at_the_request(self, open_world: OpenWorld) -> None:
        """The engine fetches the cache and is told to end it; the caller's outcome does not wait for that."""
        engine = decode_engine()
        async with open_world(engine) as world:
            visit = world.ask(caller=left(), wire=handed())
            answer = await visit.answer()
            assert answer.finish_reasons == ["cancelled"]
            (spec,) = engine.live.values()
            assert (spec.prompt, spec.stage, spec.handoff) == (PROMPT, Stage.DECODE, HANDED)
            assert spec.stop.max_tokens == 1
            assert engine.ids_of("abort") == [visit.id]
            idle = [world.graph.executor.is_idle]

            engine.finish(visit.id, FinishReason.CANCELLED, [7])
            await world.settle()
            idle.append(world.graph.executor.is_idle)
            assert idle == [False, True]
            assert world.outcomes() == {GONE: 1}

    async def test_while_it_waits_for_a_slot(self, open_world: OpenWorld) -> None:
        """At once, beside those that have the slots: it needs one for a moment."""
        engine = decode_engine(max_num_seqs=1)
        async with open_world(engine) as world:
            served = await world.ask_settled(wire=handed())
            waits = await world.ask_settled(wire=handed())
            assert list(engine.live) == [served.id]
            await waits.leave()
            await world.settle()
            assert list(engine.live) == [served.id, waits.id]
            assert engine.ids_of("abort") == [waits.id]

            for visit in (waits, served):
                engine.finish(visit.id, FinishReason.LENGTH, [7])
            await world.settle()
            assert world.outcomes() == {GONE: 1, Outcome.COMPLETED: 1}

    async def test_once_the_engine_has_it_there_is_nothing_to_fetch_twice(
        self, open_world: OpenWorld
    ) -> None:
        """Its own abort is what ends it."""
        engine = decode_engine()
        async with open_world(engine) as world:
            visit = await world.ask_settled(wire=handed())
            await visit.leave()
            await world.settle()
            assert engine.ids_of("submit") == engine.ids_of("abort") == [visit.id]
            engine.finish(visit.id, FinishReason.CANCELLED)


class TestRefused:
    @pytest.mark.parametrize("options", [{"n": 2}, {"temperature": -1.0}, {"routing": {"dp_rank": 9}}])
    async def test_a_request_that_is_wrong_for_another_reason(
        self, open_world: OpenWorld, options: dict[str, Any]
    ) -> None:
        """Its caller hears why; the prefill worker gets its memory back."""
        engine = decode_engine()
        async with open_world(engine) as world:
            visit = world.ask(wire=handed(**options))
            assert isinstance((await visit.answer()).error, InvalidRequest)
            assert engine.ids_of("submit") == engine.ids_of("abort") == [visit.id]
            engine.finish(visit.id, FinishReason.CANCELLED)

    async def test_a_request_that_came_too_late(self, open_world: OpenWorld) -> None:
        """A worker that drains refuses it, and fetches its cache all the same."""
        engine = decode_engine()
        async with open_world(engine) as world:
            now_s = anyio.current_time()
            world.graph.drain.begin(DrainLadder(started_s=now_s, move_at_s=now_s + 7, end_at_s=now_s + 10))
            visit = world.ask(wire=handed())
            await visit.answer()
            assert engine.ids_of("submit") == [visit.id]
            engine.finish(visit.id, FinishReason.CANCELLED)

    @pytest.mark.parametrize(
        "wrong",
        [
            {"token_ids": []},
            {"token_ids": ["a"]},
            {"token_ids": [-1]},
            {"token_ids": [10**9]},
            {"token_ids": [1] * 5000},
            {"token_ids": None},
            {"prefill_result": {"disaggregated_params": {"broken": 1}}},
        ],
    )
    async def test_what_the_engine_cannot_fetch_is_left_to_the_time_out(
        self, open_world: OpenWorld, wrong: dict[str, Any]
    ) -> None:
        """Nothing reaches it that could harm it."""
        engine = decode_engine()
        async with open_world(engine) as world:
            await world.ask(wire=handed() | wrong).answer()
            await world.ask(caller=left(), wire=handed() | wrong).answer()
            assert engine.calls == []


class TestBounds:
    async def test_a_burst_of_leavers_does_not_grow_the_engines_queue_for_ever(
        self, open_world: OpenWorld
    ) -> None:
        """Beyond a number they are left to the time-out, and counted."""
        engine = decode_engine(max_num_seqs=2)
        async with open_world(engine) as world:
            visits = [world.ask(caller=left(), wire=handed()) for _ in range(MOST_UNCLAIMED + 7)]
            for visit in visits:
                await visit.answer()
            assert len(engine.live) == MOST_UNCLAIMED + 2
            assert world.listener.bounds[Bound.ENGINE_SEQUENCES] == 5
            for engine_id in tuple(engine.live):
                engine.finish(engine_id, FinishReason.CANCELLED)

    async def test_an_engine_that_takes_no_more_is_not_asked_twice(
        self, open_world: OpenWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Why it does not is told by its next step, not by a request that nobody waits for."""
        engine = decode_engine()
        async with open_world(engine) as world:

            def refuse(_id: EngineId, _spec: GenerationSpec) -> None:
                raise RuntimeError("no more")

            monkeypatch.setattr(engine, "submit", refuse)
            await world.ask(caller=left(), wire=handed()).answer()
            await world.settle()
            assert world.graph.executor.is_idle

    @pytest.mark.parametrize("role", [Stage.WHOLE, Stage.PREFILL])
    async def test_other_workers_fetch_nothing(self, open_world: OpenWorld, role: Stage) -> None:
        """They refuse a request with a hand-off."""
        engine = ScriptedEngine(capabilities=EngineCapabilities(role=role))
        engine.preparer = Reads()
        async with open_world(engine) as world:
            await world.ask(wire=handed()).answer()
            await world.ask(caller=left(), wire=handed()).answer()
            assert engine.calls == []


class TestAnyStory:
    @pytest.mark.parametrize("seed", range(25))
    async def test_every_cache_is_fetched_once(self, open_world: OpenWorld, seed: int) -> None:
        """Whoever leaves whenever, whatever is wrong with the request: one submit for each."""
        dice = random.Random(seed)
        engine = decode_engine(max_num_seqs=2)
        async with open_world(engine) as world:
            visits: list[Visit] = []
            for _ in range(12):
                options: dict[str, Any] = dice.choice([{}, {}, {"n": 2}, {"max_tokens": 3}])
                caller = left() if dice.random() < 0.3 else FakeCaller()
                visits.append(world.ask(caller=caller, wire=handed(**options)))
                await _happens(dice, world, visits, engine)
            for visit in visits:
                await visit.leave()
            await world.settle()
            while engine.live:
                await _finish_all(engine)
                await world.settle()
            assert sorted(engine.ids_of("submit")) == [visit.id for visit in visits]
            assert world.graph.executor.is_idle

    async def test_a_dead_engine_is_asked_for_nothing(self, open_world: OpenWorld) -> None:
        """Those that waited end with it; what was handed over for them is left to the time-out."""
        engine = decode_engine(max_num_seqs=1)

        async def live(world: World) -> None:
            for _ in range(4):
                await world.ask_settled(wire=handed())
            engine.die()

        world = await crash(open_world, live, engine)
        assert engine.ids_of("submit") == [world.visits[0].id]


async def _happens(dice: random.Random, world: World, visits: list[Visit], engine: ScriptedEngine) -> None:
    """Something, or a little time."""
    match dice.randrange(4):
        case 0:
            await world.settle()
        case 1:
            await dice.choice(visits).leave()
        case 2:
            await _finish_all(engine)
        case _:
            await anyio.lowlevel.checkpoint()


async def _finish_all(engine: ScriptedEngine) -> None:
    """The engine has said its last of everything it has."""
    for engine_id in tuple(engine.live):
        engine.finish(engine_id, FinishReason.LENGTH, [7])


@pytest.mark.parametrize(
    "wire",
    [
        None,
        [],
        {},
        {"prefill_result": None},
        {"prefill_result": {}},
        {"prefill_result": {"disaggregated_params": {}}},
    ],
)
def test_a_request_without_a_hand_off(wire: object) -> None:
    """Whatever the request looks like."""
    assert not has_handoff(wire)
