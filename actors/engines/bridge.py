"""From an engine's own thread to the event loop: at most four undelivered steps, nothing lost.

The thread calls `deliver` once per step and waits there when the graph is behind. The loop calls
`next_step`. One `call_soon_threadsafe` wakes the loop, and only when it was asleep.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque

from protocols.errors import EngineDead
from protocols.steps import EngineStep

# Enough to keep an engine busy over one slow turn of the loop, small enough that a cancel is
# never more than four steps behind what the client sees.
UNDELIVERED_STEPS = 4


class StepBridge:
    """Carries steps from one thread to one loop."""

    def __init__(self, limit: int = UNDELIVERED_STEPS) -> None:
        self._room = threading.Semaphore(limit)
        self._steps: deque[EngineStep] = deque()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sleeper: asyncio.Future[None] | None = None
        self._failure: BaseException | None = None
        self._is_closed = False

    def bind(self) -> None:
        """Remember the running loop. Called in it, before the thread starts."""
        self._loop = asyncio.get_running_loop()

    def deliver(self, step: EngineStep) -> bool:
        """Engine thread: hand over one step; wait while four are undelivered. False once closed."""
        self._room.acquire()
        with self._lock:
            if self._is_closed:
                self._room.release()
                return False
            self._steps.append(step)
            sleeper, self._sleeper = self._sleeper, None
        self._wake(sleeper)
        return True

    def fail(self, cause: BaseException) -> None:
        """Any thread: the engine is dead. Steps already delivered are still given out first."""
        with self._lock:
            if self._failure is None:
                self._failure = cause
            sleeper, self._sleeper = self._sleeper, None
        self._wake(sleeper)

    def close(self) -> None:
        """Loop: let a waiting engine thread go. Later deliveries are refused."""
        with self._lock:
            self._is_closed = True
        self._room.release()

    async def next_step(self) -> EngineStep:
        """Loop: the oldest undelivered step. Raises EngineDead, with its cause, after the last one."""
        while True:
            with self._lock:
                if self._steps:
                    step = self._steps.popleft()
                    self._room.release()
                    return step
                if self._failure is not None:
                    raise EngineDead("the engine will not step again") from self._failure
                sleeper = self._sleeper = asyncio.get_running_loop().create_future()
            await sleeper

    def _wake(self, sleeper: asyncio.Future[None] | None) -> None:
        if sleeper is None or self._loop is None:
            return
        try:
            self._loop.call_soon_threadsafe(_set_if_waiting, sleeper)
        except RuntimeError:
            # The loop is closed: nobody will ask for another step.
            return


def _set_if_waiting(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)
