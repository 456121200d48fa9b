"""Promises about requests that an engine must prepare first: they hold up nobody but their like."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.drain import DrainLadder
from actors.resolver import LONGEST_PARKED_S
from protocols.errors import (
    DeadlineExceeded,
    EngineDead,
    EngineShutdown,
    GenerationFailed,
    InternalError,
    InvalidRequest,
    Overloaded,
)
from protocols.steps import FinishReason
from protocols.telemetry import CancelReason, Outcome, Phase
from tests.actors.world import open_world as open_audited
from tests.doubles.callers import FakeCaller
from tests.doubles.engines import GUIDES, SteppingEngine, guiding_engine
from tests.doubles.preparers import HeldPreparer
from tests.doubles.scheduling import run_seeded

if TYPE_CHECKING:
    from tests.actors.world import Visit, World
    from tests.conftest import OpenWorld

pytestmark = pytest.mark.anyio


async def ask_guided(world: World, constraint: str = "a+", caller: FakeCaller | None = None) -> Visit:
    return await world.ask_settled(caller=caller, guided_decoding={"regex": constraint})


class TestOvertaking:
    async def test_others_overtake(self, open_world: OpenWorld) -> None:
        """While a grammar is compiled, a plain request and one whose grammar is known go by."""
        engine, preparer = guiding_engine()
        async with open_world(engine) as world:
            known = await ask_guided(world, "known")
            preparer.release()
            await world.settle()
            slow = await ask_guided(world, "slow")
            plain = await world.ask_settled()
            again = await ask_guided(world, "known")
            assert list(engine.live) == [known.id, plain.id, again.id]
            assert slow.ticket.phase is Phase.RESOLVING
            preparer.release()
            await world.settle()
            assert list(engine.live) == [known.id, plain.id, again.id, slow.id]
            assert [spec.guided and spec.guided.grammar for spec in engine.live.values()] == [
                "grammar of known", None, "grammar of known", "grammar of slow",
            ]  # fmt: skip
            for visit in world.visits:
                engine.finish(visit.id, FinishReason.STOP, [5])

    async def test_their_like_wait_in_order(self, open_world: OpenWorld) -> None:
        """One at a time, the first first; an equal one that waited is not prepared again."""
        engine, preparer = guiding_engine()
        async with open_world(engine) as world:
            visits = [await ask_guided(world, constraint) for constraint in ("a", "b", "a")]
            for _ in ("a", "b"):
                preparer.release()
                await world.settle()
            assert list(engine.live) == [visit.id for visit in visits]
            assert len(preparer.asked) == 2
            for visit in visits:
                engine.finish(visit.id)

    async def test_a_burst_of_equal_ones_is_prepared_once_and_nobody_is_refused(
        self, open_world: OpenWorld
    ) -> None:
        """However many ask at the same moment: the first is prepared, the others find its grammar."""
        engine, preparer = guiding_engine()
        async with open_world(engine, max_live=200) as world:
            visits = [await ask_guided(world, "a") for _ in range(150)]
            preparer.release()
            await world.settle()
            assert len(preparer.asked) == 1
            while engine.live:
                for engine_id in list(engine.live):
                    engine.finish(engine_id)
                await world.settle()
            assert world.outcomes() == {Outcome.COMPLETED: len(visits)}

    async def test_who_would_wait_too_long_is_refused_and_can_come_back(self, open_world: OpenWorld) -> None:
        """While the one under way is 10 s old: overload with a reason of its own; plain ones are taken."""
        engine, preparer = guiding_engine()
        async with open_world(engine) as world:
            parked = [await ask_guided(world, "slow")]
            await anyio.sleep(LONGEST_PARKED_S - 1)
            parked.append(await ask_guided(world, "in time"))
            await anyio.sleep(1)
            refused = await ask_guided(world, "one more")
            answer = await refused.answer()
            assert isinstance(answer.error, Overloaded)
            assert answer.error.reason == "preparing_full"
            assert world.listener.rejections == {"preparing_full": 1}
            plain = await world.ask_settled()
            for _ in parked:
                preparer.release()
                await world.settle()
            back = await ask_guided(world, "one more")
            preparer.release()
            await world.settle()
            for visit in (plain, *parked, back):
                engine.finish(visit.id)
            await world.settle()
            assert world.outcomes() == {Outcome.COMPLETED: 4, Outcome.REFUSED: 1}


class TestFailures:
    @pytest.mark.parametrize(
        ("raised", "seen", "outcome"),
        [
            (InvalidRequest("guided", "(", "a regex"), InvalidRequest, Outcome.REFUSED),
            (Overloaded("preparing_full", "stuck"), Overloaded, Outcome.REFUSED),
            (RuntimeError("the secret of the caller"), GenerationFailed, Outcome.FAILED),
        ],
        ids=["invalid", "overloaded", "anything else"],
    )
    async def test_what_a_preparer_raises_ends_the_request_at_hand(
        self, open_world: OpenWorld, raised: Exception, seen: type[Exception], outcome: Outcome
    ) -> None:
        """In words without content; the one behind it is prepared."""
        engine, preparer = guiding_engine()
        async with open_world(engine) as world:
            visit = await ask_guided(world)
            waiting = await ask_guided(world, "b")
            preparer.release(raised)
            await world.settle()
            answer = await visit.answer()
            assert visit.ticket.outcome is outcome
            assert isinstance(answer.error, seen)
            assert "secret" not in str(answer.error)
            assert engine.ids_of("submit") == []
            preparer.release()
            await world.settle()
            engine.finish(waiting.id)

    @pytest.mark.parametrize("raised", [EngineDead("the engine's"), InternalError("a bug")])
    async def test_what_is_fatal_everywhere_is_fatal_here(self, raised: Exception) -> None:
        """The graph ends, and whoever was parked is told."""
        engine, preparer = guiding_engine()
        visits: list[Visit] = []

        async def live() -> None:
            async with open_audited(engine) as world:
                visits.extend([await ask_guided(world, constraint) for constraint in ("a", "b")])
                preparer.release(raised)
                await anyio.sleep_forever()

        with pytest.raises(ExceptionGroup) as caught:
            await live()
        assert caught.group_contains(type(raised))
        for visit in visits:
            assert isinstance((await visit.answer()).error, EngineShutdown)


class TestEarlyEnds:
    @pytest.mark.parametrize("is_current", [True, False], ids=["being prepared", "waiting"])
    async def test_a_client_that_leaves(self, open_world: OpenWorld, is_current: bool) -> None:
        """It ends at once; the engine never hears of it; whoever waits behind it is served."""
        engine, preparer = guiding_engine()
        async with open_world(engine) as world:
            visits = [await ask_guided(world, constraint) for constraint in ("a", "b", "c")]
            gone = visits.pop(0 if is_current else 1)
            await gone.leave()
            await world.settle()
            assert gone.ticket.outcome is Outcome.CANCELLED
            assert world.listener.cancellations == {(CancelReason.CLIENT, Phase.RESOLVING): 1}
            assert (await gone.answer()).finish_reasons == ["cancelled"]
            while preparer.is_busy:
                preparer.release()
                await world.settle()
            assert list(engine.submitted) == [visit.id for visit in visits]
            assert len(preparer.asked) == (3 if is_current else 2)
            for visit in visits:
                engine.finish(visit.id)

    async def test_a_deadline(self, open_world: OpenWorld) -> None:
        """A grammar that is not ready in time is that request's end."""
        engine, preparer = guiding_engine()
        async with open_world(engine) as world:
            visit = await ask_guided(world, caller=FakeCaller(metadata={"deadline-ms": "500"}))
            answer = await visit.answer()
            assert isinstance(answer.error, DeadlineExceeded)
            assert world.listener.stories[visit.id].phase is Phase.RESOLVING
            preparer.release()
            await world.settle()
            assert engine.ids_of("submit") == []

    async def test_a_drain(self, open_world: OpenWorld) -> None:
        """It waits for them as for everybody; at its end they are interrupted, and it is over."""
        engine, preparer = guiding_engine()
        async with open_world(engine) as world:
            in_time, late = await ask_guided(world, "a"), await ask_guided(world, "b")
            now_s = anyio.current_time()
            world.graph.drain.begin(DrainLadder(started_s=now_s, move_at_s=now_s + 1, end_at_s=now_s + 2))
            await anyio.sleep(1.5)
            preparer.release()
            await world.settle()
            engine.finish(in_time.id)
            await world.graph.drain.wait_over()
            assert anyio.current_time() == pytest.approx(now_s + 2, abs=0.01)
            assert isinstance((await late.answer()).error, EngineShutdown)
            assert world.outcomes() == {Outcome.COMPLETED: 1, Outcome.INTERRUPTED: 1}
            preparer.release()
            await world.settle()
            assert list(engine.submitted) == [in_time.id]

    async def test_the_end_of_the_graph(self) -> None:
        """Whoever is parked gets a typed error, and the call that prepares is cancelled."""
        engine, preparer = guiding_engine()
        visits: list[Visit] = []

        async def live() -> None:
            async with open_audited(engine) as world:
                visits.extend([await ask_guided(world, constraint) for constraint in ("a", "b")])
                engine.die()
                await anyio.sleep_forever()

        with pytest.raises(ExceptionGroup) as caught:
            await live()
        assert caught.group_contains(EngineDead)
        for visit in visits:
            assert isinstance((await visit.answer()).error, EngineShutdown)
            assert visit.ticket.outcome is Outcome.FAILED
        assert (preparer.is_busy, preparer.cancelled) == (False, 1)


@given(constraints=st.lists(st.sampled_from([None, "a", "b", "c"]), max_size=16), seed=st.integers(0, 2**16))
def test_however_requests_come_plain_ones_never_wait_for_a_grammar(
    constraints: list[str | None], seed: int
) -> None:
    """With the preparer stuck at the first constraint, all plain requests are answered, in any task order."""
    run_seeded(_check_plain_ones, constraints, seed=seed)


async def _check_plain_ones(constraints: list[str | None]) -> None:
    engine = SteppingEngine()
    engine.capabilities = GUIDES
    engine.preparer = preparer = HeldPreparer()
    async with open_audited(engine) as world:
        guided = [
            world.ask(max_tokens=2, guided_decoding=None if each is None else {"regex": each})
            for each in constraints
        ]
        for visit, each in zip(guided, constraints, strict=True):
            if each is None:
                assert len((await visit.answer()).tokens) == 2
        await world.settle()
        while preparer.is_busy:
            preparer.release()
            await world.settle()
        kinds = {constraint for constraint in constraints if constraint is not None}
        assert len(preparer.asked) == len(kinds)
        for visit in guided:
            assert (await visit.answer()).finish_reasons == ["length"]
