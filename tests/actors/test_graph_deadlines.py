"""A deadline holds wherever a request is when it passes, and costs nobody else anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest
import trio.lowlevel
from trio.testing import MockClock

from actors.cancellation import SWEEP_S
from protocols.errors import DeadlineExceeded
from protocols.steps import FinishReason
from protocols.telemetry import CancelReason, Outcome, Phase
from tests.doubles.callers import FakeCaller
from tests.doubles.engines import engine_info, guiding_engine

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.actors.world import Visit, World
    from tests.conftest import OpenWorld

pytestmark = pytest.mark.anyio

BUDGET_S = 1.5
BOUND_TOKENS = 4
DUST_S = 1e-6


def ask(world: World, **options: Any) -> Visit:
    """A request with a deadline of its own."""
    return world.ask(caller=FakeCaller(metadata={"deadline-ms": f"{BUDGET_S * 1000:g}"}), **options)


async def before_the_intake(world: World) -> Visit:
    """The loop is held up, and nobody looks at the request before its time is nearly over."""
    visit = ask(world)
    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, MockClock)
    clock.jump(BUDGET_S - 0.01)
    return visit


async def parked(world: World) -> Visit:
    """Its grammar is being prepared."""
    return ask(world, guided_decoding={"regex": "a+"})


async def parked_behind_another(world: World) -> Visit:
    """It waits for its turn at that."""
    await world.ask_settled(guided_decoding={"regex": "b+"})
    return ask(world, guided_decoding={"regex": "a+"})


async def waiting(world: World) -> Visit:
    """All slots are taken."""
    for _ in range(2):
        await world.ask_settled()
    return ask(world)


async def prefill(world: World) -> Visit:
    """The engine has it and has said nothing."""
    visit = ask(world)
    await world.settle()
    return visit


async def decode(world: World) -> Visit:
    """Some of it was said and read."""
    visit = await prefill(world)
    world.engine.say(visit.id, 5, 6)
    await visit.reader.read()
    return visit


async def paused(world: World) -> Visit:
    """It is held back: its reader is behind."""
    visit = await prefill(world)
    world.engine.say(visit.id, *range(BOUND_TOKENS))
    await world.settle()
    assert visit.id in world.engine.paused
    return visit


async def unread(world: World) -> Visit:
    """Something lies before its reader, less than would hold it back."""
    visit = await prefill(world)
    world.engine.say(visit.id, 5)
    await world.settle()
    return visit


PLACES: list[tuple[Callable[[World], Awaitable[Visit]], Phase, int]] = [
    (before_the_intake, Phase.PREFILL, 0),
    (parked, Phase.RESOLVING, 0),
    (parked_behind_another, Phase.RESOLVING, 0),
    (waiting, Phase.WAITING, 0),
    (prefill, Phase.PREFILL, 0),
    (decode, Phase.DECODE, 2),
    (paused, Phase.DECODE, BOUND_TOKENS),
    (unread, Phase.DECODE, 1),
]


@pytest.mark.parametrize(("bring", "phase", "tokens"), PLACES, ids=[place[0].__name__ for place in PLACES])
async def test_it_ends_where_its_deadline_finds_it(
    open_world: OpenWorld, bring: Callable[[World], Awaitable[Visit]], phase: Phase, tokens: int
) -> None:
    """Not before, a sweep later at most: what was said, then one typed error; one abort where it is known."""
    engine, preparer = guiding_engine()
    engine.info = engine_info(max_num_seqs=2)
    bounds = {"outbox_tokens": BOUND_TOKENS, "stall_timeout_s": 1e6, "hang_timeout_s": 1e6}
    async with open_world(engine, **bounds) as world:
        visit = await bring(world)
        due_s = visit.ticket.times.arrived_s + BUDGET_S
        await anyio.sleep_until(due_s - DUST_S)
        assert not visit.ticket.is_ended
        assert visit.ticket.phase is phase
        await anyio.sleep_until(due_s + SWEEP_S + DUST_S)
        await world.settle()
        assert visit.ticket.outcome is Outcome.DEADLINE
        is_known = phase in {Phase.PREFILL, Phase.DECODE}
        assert engine.ids_of("abort") == [visit.id] * is_known
        assert (visit.id in engine.submitted) == is_known
        answer = await visit.answer()
        assert isinstance(answer.error, DeadlineExceeded)
        assert len(answer.tokens) == tokens
        assert world.listener.cancellations == {(CancelReason.DEADLINE, phase): 1}
        assert world.listener.stories[visit.id].cancelled_s == due_s
        while preparer.is_busy:
            preparer.release()
            await world.settle()
        for other in list(engine.live):
            engine.finish(other)
        await world.settle()
        assert world.graph.executor.is_idle


async def test_an_answer_that_is_over_is_in_time_for_ever(open_world: OpenWorld) -> None:
    """It lies unread beyond the deadline: whole, with its own end."""
    async with open_world(stall_timeout_s=1e6) as world:
        visit = await prefill(world)
        world.engine.finish(visit.id, FinishReason.STOP, [5, 6])
        await anyio.sleep(10 * BUDGET_S)
        answer = await visit.answer()
        assert (answer.tokens, answer.finish_reasons) == ([5, 6], ["stop"])
        assert world.outcomes() == {Outcome.COMPLETED: 1}
