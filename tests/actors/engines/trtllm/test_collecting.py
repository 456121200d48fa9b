"""All of one turn of the loop is one step; nothing is lost, and a death is told last."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from actors.engines.trtllm.answers import collecting
from actors.engines.trtllm.answers.collecting import CacheState, StepCollector
from protocols.errors import EngineDead
from protocols.steps import Delta, EngineId, EngineStep, KvCleared, ProcessorUse

pytestmark = pytest.mark.anyio


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


async def test_a_new_state_of_the_cache_is_a_step_that_is_no_iteration() -> None:
    """It is told at rest, too; nothing was computed for it, and it takes no time from the step around it."""
    steps = StepCollector()
    waiting = asyncio.create_task(take(steps))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    steps.tell_state(CacheState(used=3))
    told = await waiting
    assert (told.used_blocks, told.deltas, told.is_iteration) == (3, [], False)
    assert told.started_s == told.ended_s
    waiting = asyncio.create_task(take(steps))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    steps.say([delta(1)])
    step = await waiting
    assert step.is_iteration
    assert step.started_s <= told.started_s <= step.ended_s


async def test_a_new_state_of_the_cache_makes_no_step_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step that is under way began before that was told, and goes on."""
    now = [100.0]
    monkeypatch.setattr(collecting, "time", SimpleNamespace(monotonic=lambda: now[0]))
    steps = StepCollector()
    now[0] = 100.25
    steps.tell_state(CacheState(used=3))
    await take(steps)
    now[0] = 100.5
    steps.say([delta(1)])
    step = await take(steps)
    assert (step.started_s, step.ended_s) == (100.0, 100.5)


async def test_a_state_that_is_as_it_was_is_no_reason_for_a_step() -> None:
    """Statistics come with every iteration; and what comes with tokens is part of their step."""
    steps = StepCollector()
    steps.tell_state(CacheState())
    steps.say([delta(1)])
    steps.tell_state(CacheState(used=3))
    step = await take(steps)
    assert (step.used_blocks, step.is_iteration) == (3, True)
    steps.tell_state(CacheState(used=3))
    waiting = asyncio.create_task(take(steps))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    steps.tell_state(CacheState())
    assert (await waiting).used_blocks == 0


async def test_a_death_does_not_wait_for_counts() -> None:
    """Of a cache that is gone."""
    steps = StepCollector()
    steps.tell_state(CacheState(used=3))
    steps.fail(RuntimeError("dead"))
    with pytest.raises(EngineDead):
        await take(steps)


async def test_a_closed_one_says_that_it_was_stopped() -> None:
    """Also to who waits already."""
    steps = StepCollector()
    waiting = asyncio.create_task(take(steps))
    await asyncio.sleep(0)
    steps.close()
    with pytest.raises(EngineDead):
        await waiting


async def test_a_rest_is_no_part_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first step after one begins with the work; the next ones where the one before ended."""
    now = [100.0]
    monkeypatch.setattr(collecting, "time", SimpleNamespace(monotonic=lambda: now[0]))
    steps = StepCollector()
    for begin_s, end_s in ((700.0, 700.5), (5000.0, 5000.25)):
        now[0] = begin_s
        steps.begin()
        now[0] = end_s
        steps.say([delta(1)])
        step = await take(steps)
        assert (step.started_s, step.ended_s) == (begin_s, end_s)
        now[0] = end_s + 0.125
        steps.say([delta(1)])
        assert (await take(steps)).started_s == end_s
