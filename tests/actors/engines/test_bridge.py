"""Promises of the bridge between an engine's thread and the event loop."""

from __future__ import annotations

import asyncio
import random
import threading
from typing import TYPE_CHECKING

import pytest
import uvloop

from actors.engines.bridge import UNDELIVERED_STEPS, StepBridge
from protocols.bounds import Bound
from protocols.errors import EngineDead
from protocols.steps import EngineStep
from tests.doubles.listeners import RecordingTelemetry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HAMMER_STEPS = 100_000


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, object]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


pytestmark = pytest.mark.anyio


def step(number: int) -> EngineStep:
    """A step that can be told from others by its ``running``."""
    return EngineStep([], 0.0, 0.0, running=number)


class EngineThread:
    """A thread that delivers numbered steps as fast as the bridge takes them."""

    def __init__(self, bridge: StepBridge, steps: int) -> None:
        self.delivered = 0
        self.was_refused = False
        self._bridge = bridge
        self._steps = steps
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        for number in range(self._steps):
            if not self._bridge.deliver(step(number)):
                self.was_refused = True
                return
            self.delivered += 1

    async def end(self) -> None:
        """Wait for the thread without blocking the loop."""
        await asyncio.to_thread(self._thread.join)


@pytest.fixture
def bridge() -> Iterator[StepBridge]:
    """Closed at the end, so that no test leaves its thread behind."""
    bridge = StepBridge()
    yield bridge
    bridge.close()


async def until(is_true: Callable[[], bool]) -> None:
    """Let the loop turn until something becomes true; the test's time limit ends it otherwise."""
    while not is_true():  # noqa: ASYNC110 - what a thread does sets no event
        await asyncio.sleep(0)


async def test_steps_come_in_order_and_all_of_them(bridge: StepBridge) -> None:
    """Every delivered step is given out once, oldest first."""
    thread = EngineThread(bridge, 1000)
    assert [(await bridge.next_step()).running for _ in range(1000)] == list(range(1000))
    await thread.end()


async def test_the_thread_waits_at_four_undelivered_steps(bridge: StepBridge) -> None:
    """An engine is never more than four steps ahead of the graph, and goes on one by one."""
    thread = EngineThread(bridge, 1000)
    for taken in range(10):
        most = taken + UNDELIVERED_STEPS
        await until(lambda most=most: thread.delivered == most)  # type: ignore[misc]
        for _ in range(100):  # turns in which the thread could run
            await asyncio.sleep(0)
        assert thread.delivered == most
        await bridge.next_step()


async def test_a_wait_of_the_thread_is_counted_once() -> None:
    """For the step that found no room, not for the four before it."""
    listener = RecordingTelemetry()
    bridge = StepBridge(on_bound=listener.bound_reached)
    thread = EngineThread(bridge, UNDELIVERED_STEPS + 1)
    await until(lambda: bool(listener.bounds))
    assert [(await bridge.next_step()).running for _ in range(5)] == list(range(5))
    await thread.end()
    assert listener.bounds == {Bound.UNDELIVERED_STEPS: 1}


async def test_a_sleeping_loop_is_woken(bridge: StepBridge) -> None:
    """A step delivered from a thread ends a wait that began before it."""
    asked = asyncio.create_task(bridge.next_step())
    await until(lambda: bridge._sleeper is not None)
    thread = EngineThread(bridge, 1)
    assert (await asked).running == 0
    await thread.end()


async def test_a_failure_comes_after_the_steps_before_it(bridge: StepBridge) -> None:
    """What the engine still made is given out; then every call says why it died."""
    cause = ValueError("device fault")
    bridge.deliver(step(1))
    bridge.deliver(step(2))
    bridge.fail(cause)
    bridge.fail(RuntimeError("a later symptom"))
    assert [(await bridge.next_step()).running for _ in range(2)] == [1, 2]
    for _ in range(2):
        with pytest.raises(EngineDead) as caught:
            await bridge.next_step()
        assert caught.value.__cause__ is cause


async def test_a_failure_wakes_a_sleeping_loop(bridge: StepBridge) -> None:
    """An engine that dies while the graph waits ends that wait."""
    asked = asyncio.create_task(bridge.next_step())
    await asyncio.sleep(0)
    await asyncio.to_thread(bridge.fail, ValueError("device fault"))
    with pytest.raises(EngineDead):
        await asked


async def test_close_lets_a_waiting_thread_go(bridge: StepBridge) -> None:
    """A thread that waits for room returns when the bridge is closed, and its step is refused."""
    thread = EngineThread(bridge, 1000)
    await until(lambda: thread.delivered == UNDELIVERED_STEPS)
    bridge.close()
    await thread.end()
    assert thread.was_refused


async def test_close_lets_several_threads_go(bridge: StepBridge) -> None:
    """No delivery waits for ever, however many wait at once and whenever they come."""
    threads = [EngineThread(bridge, 1000) for _ in range(5)]
    await until(lambda: sum(thread.delivered for thread in threads) == UNDELIVERED_STEPS)
    bridge.close()
    threads.append(EngineThread(bridge, 1000))
    for thread in threads:
        await thread.end()
        assert thread.was_refused


async def test_close_ends_the_wait_for_a_step(bridge: StepBridge) -> None:
    """A graph that waits for a step is told that none will come, after those that were there."""
    bridge.deliver(step(1))
    bridge.close()
    bridge.close()
    assert (await bridge.next_step()).running == 1
    with pytest.raises(EngineDead) as caught:
        await bridge.next_step()
    assert caught.value.__cause__ is None


async def test_close_wakes_a_sleeping_loop() -> None:
    """A wait that began before the close ends with it."""
    bridge = StepBridge()
    asked = asyncio.create_task(bridge.next_step())
    await asyncio.sleep(0)
    bridge.close()
    with pytest.raises(EngineDead):
        await asked


@pytest.mark.parametrize("turns", [0, 1])
async def test_a_cancelled_wait_loses_nothing(bridge: StepBridge, turns: int) -> None:
    """A step that arrives together with the cancel, or just before it, is given to the next caller."""
    asked = asyncio.create_task(bridge.next_step())
    await until(lambda: bridge._sleeper is not None)
    bridge.deliver(step(1))
    for _ in range(turns):  # with one turn the wait is over, but its task has not run yet
        await asyncio.sleep(0)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    bridge.deliver(step(2))
    assert [(await bridge.next_step()).running for _ in range(2)] == [1, 2]


async def test_a_caller_in_a_loop_starves_nobody(bridge: StepBridge) -> None:
    """Other tasks run between two steps even when steps are always waiting."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counter = asyncio.create_task(count())
    for number in range(100):
        bridge.deliver(step(number))
        await bridge.next_step()
    assert turns >= 100
    counter.cancel()


def test_a_delivery_after_the_loop_has_closed_is_harmless() -> None:
    """An engine thread that is late does not fail because its loop has gone."""
    bridge = StepBridge()

    async def wait_and_leave() -> None:
        asked = asyncio.ensure_future(bridge.next_step())
        await until(lambda: bridge._sleeper is not None)
        asked.cancel()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(wait_and_leave())
    assert bridge.deliver(step(1))
    bridge.close()


@pytest.mark.timeout(60)  # 3 s on two quiet cores
async def test_hammer(bridge: StepBridge) -> None:
    """100,000 steps from a real thread, waits cancelled at random: all come, once, in order."""
    thread = EngineThread(bridge, HAMMER_STEPS)
    chance = random.Random(1)
    expected = 0
    while expected < HAMMER_STEPS:
        if chance.random() < 0.01:
            asked = asyncio.create_task(bridge.next_step())
            for _ in range(chance.randrange(3)):
                await asyncio.sleep(0)
            asked.cancel()
            (taken,) = await asyncio.gather(asked, return_exceptions=True)
            if isinstance(taken, BaseException):
                continue
        else:
            taken = await bridge.next_step()
        assert taken.running == expected
        expected += 1
    await thread.end()
    assert thread.delivered == HAMMER_STEPS
