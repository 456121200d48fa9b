"""All of one turn of the loop is one step; nothing is lost, and a death is told last."""

from __future__ import annotations

import asyncio

import pytest

from actors.engines.trtllm.collecting import StepCollector
from protocols.errors import EngineDead
from protocols.steps import Delta, EngineId, EngineStep, KvCleared, ProcessorUse

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """The driver's tasks are asyncio's."""
    return "asyncio"


def delta(number: int) -> Delta:
    """One token of one request."""
    return Delta(EngineId(number), [number])


async def take(steps: StepCollector) -> EngineStep:
    """The next step of an engine with one sequence."""
    return await steps.next_step(lambda: 1)


async def test_what_several_say_in_one_turn_is_one_step() -> None:
    """However many consumers woke up."""
    steps = StepCollector()
    waiting = asyncio.create_task(take(steps))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for number in range(3):
        steps.say([delta(number)])
    step = await waiting
    assert [each.engine_id for each in step.deltas] == [0, 1, 2]
    assert step.running == 1
    assert step.started_s <= step.ended_s


async def test_steps_that_nobody_takes_grow_together() -> None:
    """In order."""
    steps = StepCollector()
    for number in range(100):
        steps.say([delta(number)])
        await asyncio.sleep(0)
    assert [each.engine_id for each in (await take(steps)).deltas] == list(range(100))


async def test_what_was_said_before_a_death_is_given_out_first() -> None:
    """Then the first cause, to everybody who asks."""
    steps, cause = StepCollector(), RuntimeError("first")
    steps.say([delta(1)])
    steps.fail(cause)
    steps.fail(RuntimeError("second"))
    assert len((await take(steps)).deltas) == 1
    for _ in range(2):
        with pytest.raises(EngineDead) as caught:
            await take(steps)
        assert caught.value.__cause__ is cause


async def test_a_cancelled_wait_loses_nothing() -> None:
    """What comes afterwards is for the next caller."""
    steps = StepCollector()
    waiting = asyncio.create_task(take(steps))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    steps.say([delta(1)])
    waiting.cancel()
    await asyncio.wait({waiting})
    steps.say([delta(2)])
    assert [each.engine_id for each in (await take(steps)).deltas] == [1, 2]


async def test_news_of_the_cache_is_a_step_and_a_processors_price_is_none() -> None:
    """It goes with the next one."""
    steps = StepCollector()
    steps.tell_uses((ProcessorUse("one", 3, 0.5),))
    steps.tell_cache([KvCleared()])
    step = await take(steps)
    assert step.kv_events == (KvCleared(),)
    assert step.processors == (ProcessorUse("one", 3, 0.5),)
    assert step.deltas == []


async def test_a_closed_one_says_that_it_was_stopped() -> None:
    """Also to who waits already."""
    steps = StepCollector()
    waiting = asyncio.create_task(take(steps))
    await asyncio.sleep(0)
    steps.close()
    with pytest.raises(EngineDead):
        await waiting
