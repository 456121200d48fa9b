"""How late the event loop wakes a timer: the first figure to look at when everything is slow."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable

INTERVAL_S = 0.5


class LoopLag:
    """Sleeps, looks at the clock, and says by how much it overslept."""

    def __init__(self, observe: Callable[[float], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._observe = observe
        self._clock = clock

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            due_s = self._clock() + INTERVAL_S
            await anyio.sleep(INTERVAL_S)
            self._observe(max(0.0, self._clock() - due_s))
