"""The lane of steps, from the executor to the streamer: bounded, one writer, one reader, one loop.

It is passed once a step, so where steps carry few tokens it is the price of the hop: the reader of an anyio
channel takes a turn of the loop and some twenty calls before it sleeps, this one sleeps at once.
docs/performance.md has the figures.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import anyio

from actors.wakeup import Wakeup
from protocols.steps import EngineStep


class StepLane:
    """Either end may close it; what waits then is still given out.

    capacity: steps that fit.
    """

    def __init__(self, capacity: int, new_wakeup: Callable[[], Wakeup]) -> None:
        self.capacity = capacity
        self._steps: deque[EngineStep] = deque()
        self._is_closed = False
        self._arrival = new_wakeup()
        self._room = new_wakeup()

    @property
    def waiting(self) -> int:
        """Steps that the reader has not taken yet."""
        return len(self._steps)

    @property
    def is_full(self) -> bool:
        """Whether the writer would have to wait."""
        return len(self._steps) >= self.capacity

    async def send(self, step: EngineStep) -> None:
        """Executor: hand one over; wait while the lane is full. Raises BrokenResourceError once closed."""
        while self.is_full and not self._is_closed:
            await self._room.wait()
        if self._is_closed:
            raise anyio.BrokenResourceError
        self._steps.append(step)
        self._arrival.set()

    def __aiter__(self) -> StepLane:
        return self

    async def __anext__(self) -> EngineStep:
        """Streamer: the oldest step; ends when the lane is closed and empty."""
        while not self._steps:
            if self._is_closed:
                raise StopAsyncIteration
            await self._arrival.wait()
        self._room.set()
        return self._steps.popleft()

    def close(self) -> None:
        """No more steps. Whoever waits at either end is told. Idempotent."""
        self._is_closed = True
        self._arrival.set()
        self._room.set()
