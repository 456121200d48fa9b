"""From an engine's own thread to the event loop: at most four undelivered steps, nothing lost.

The thread calls `deliver` once per step and waits there when the graph is behind. The loop calls
`next_step`. One `call_soon_threadsafe` wakes the loop, and only when it was asleep.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import TYPE_CHECKING

from protocols.bounds import Bound, OnBound, ignore_bound
from protocols.errors import EngineDead

if TYPE_CHECKING:
    from protocols.steps import EngineStep

# Enough to keep an engine busy over one slow turn of the loop, small enough that a cancel is
# never more than four steps behind what the client sees.
UNDELIVERED_STEPS = 4


class StepBridge:
    """Carries steps from one thread to one loop. ``on_bound``: told when the thread has to wait."""

    def __init__(self, limit: int = UNDELIVERED_STEPS, on_bound: OnBound = ignore_bound) -> None:
        self._on_bound = on_bound
        self._room = threading.Semaphore(limit)
        self._steps: deque[EngineStep] = deque()
        self._lock = threading.Lock()
        self._sleeper: asyncio.Future[None] | None = None
        self._failure: BaseException | None = None
        self._is_closed = False

    def deliver(self, step: EngineStep) -> bool:
        """Engine thread: hand over one step; wait while four are undelivered. False once closed."""
        if not self._room.acquire(blocking=False):
            self._on_bound(Bound.UNDELIVERED_STEPS)
            self._room.acquire()
        with self._lock:
            if self._is_closed:
                # Passed on: whoever else waits here is refused too.
                self._room.release()
                return False
            self._steps.append(step)
            sleeper, self._sleeper = self._sleeper, None
        _wake(sleeper)
        return True

    def fail(self, cause: BaseException) -> None:
        """Any thread: the engine is dead. Steps already delivered are still given out first.

        The first cause is kept.
        """
        with self._lock:
            if self._failure is None:
                self._failure = cause
            sleeper, self._sleeper = self._sleeper, None
        _wake(sleeper)

    def close(self) -> None:
        """Any thread: no more steps. Lets a waiting engine thread go and tells a waiting loop. Idempotent."""
        with self._lock:
            self._is_closed = True
            sleeper, self._sleeper = self._sleeper, None
        self._room.release()
        _wake(sleeper)

    async def next_step(self) -> EngineStep:
        """Loop: the oldest undelivered step. One caller at a time.

        Raises EngineDead after the last one, with its cause unless the bridge was closed on purpose.
        Gives the loop one turn even when a step is there, so that a fast engine starves nobody.
        """
        await asyncio.sleep(0)
        while True:
            with self._lock:
                if self._steps:
                    step = self._steps.popleft()
                    self._room.release()
                    return step
                if self._failure is not None:
                    raise EngineDead("the engine will not step again") from self._failure
                if self._is_closed:
                    raise EngineDead("the engine was stopped")
                sleeper = self._sleeper = asyncio.get_running_loop().create_future()
            await sleeper


def _wake(sleeper: asyncio.Future[None] | None) -> None:
    if sleeper is None:
        return
    try:
        sleeper.get_loop().call_soon_threadsafe(_set_if_waiting, sleeper)
    except RuntimeError:
        # The loop is closed: nobody will ask for another step.
        return


def _set_if_waiting(sleeper: asyncio.Future[None]) -> None:
    """In the loop: its caller may have been cancelled meanwhile."""
    if not sleeper.done():
        sleeper.set_result(None)
