"""Promises of the lane of steps: bounded, in order, nothing lost, nobody left waiting at a closed one."""

from __future__ import annotations

import random

import anyio
import pytest

from actors.step_lane import StepLane
from actors.wakeup import EventWakeup
from protocols.steps import EngineStep
from tests.doubles.scheduling import run_seeded

pytestmark = pytest.mark.anyio


@pytest.fixture
async def lane() -> StepLane:
    """Two steps fit."""
    return StepLane(2, EventWakeup)


def step(number: int) -> EngineStep:
    """A step that can be told from others."""
    return EngineStep([], number, number)


async def read_to_end(lane: StepLane) -> list[float]:
    """The numbers of all steps until the lane ends."""
    return [step.started_s async for step in lane]


async def test_steps_come_in_order_until_the_lane_is_closed(lane: StepLane) -> None:
    """Those that wait when it is closed are still given out."""
    await lane.send(step(1))
    await lane.send(step(2))
    lane.close()
    assert await read_to_end(lane) == [1, 2]


async def test_a_full_lane_makes_its_writer_wait(lane: StepLane) -> None:
    """Never a drop, never more than fit; room for one lets one in."""
    async with anyio.create_task_group() as tasks:

        async def write() -> None:
            for number in range(6):
                await lane.send(step(number))
            lane.close()

        tasks.start_soon(write)
        await anyio.wait_all_tasks_blocked()
        assert (lane.waiting, lane.capacity) == (2, 2)
        assert (await anext(lane)).started_s == 0
        await anyio.wait_all_tasks_blocked()
        assert lane.waiting == 2
        assert await read_to_end(lane) == [1, 2, 3, 4, 5]


async def test_a_reader_sleeps_until_a_step_comes(lane: StepLane) -> None:
    """And a cancelled wait loses nothing."""
    with anyio.move_on_after(1):
        await anext(lane)
    await lane.send(step(7))
    lane.close()
    assert await read_to_end(lane) == [7]


async def test_closing_ends_a_reader_that_waits(lane: StepLane) -> None:
    """An empty lane that is closed is at its end."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read_to_end, lane)
        await anyio.wait_all_tasks_blocked()
        lane.close()


async def test_closing_refuses_a_writer_that_waits(lane: StepLane) -> None:
    """As a channel does whose reader has left."""
    await lane.send(step(1))
    await lane.send(step(2))
    async with anyio.create_task_group() as tasks:

        async def write() -> None:
            with pytest.raises(anyio.BrokenResourceError):
                await lane.send(step(3))

        tasks.start_soon(write)
        await anyio.wait_all_tasks_blocked()
        lane.close()
    with pytest.raises(anyio.BrokenResourceError):
        await lane.send(step(4))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("seed", range(4))
def test_a_hundred_thousand_steps_to_a_slow_reader(seed: int) -> None:
    """Bursts, and a reader that dawdles: no step is lost, repeated or overtaken, nobody is stuck (row 14).

    25,000 steps in each of four orders of tasks, which their seeds repeat.
    """
    dice = random.Random(seed)
    most = 25_000

    async def play() -> None:
        lane = StepLane(4, EventWakeup)
        read: list[float] = []

        async def write() -> None:
            for number in range(most):
                await lane.send(step(number))
                if dice.random() < 0.01:
                    await anyio.sleep(dice.choice((0.001, 0.1)))
            lane.close()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            async for each in lane:
                read.append(each.started_s)
                assert lane.waiting <= lane.capacity
                if dice.random() < 0.02:
                    await anyio.sleep(dice.choice((0.001, 0.1)))
        assert read == list(range(most))

    run_seeded(play, seed=seed)
