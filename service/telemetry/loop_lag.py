"""How late the event loop wakes a timer: the first figure to look at when everything is slow."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import anyio

from service.telemetry.stall_watch import StallWatch

if TYPE_CHECKING:
    from collections.abc import Callable

INTERVAL_S = 0.5


class LoopLag:
    """Sleeps, looks at the clock, and says by how much it overslept.

    on_stall: see `StallWatch`; None watches nothing.
    """

    def __init__(
        self,
        observe: Callable[[float], None],
        clock: Callable[[], float] = time.monotonic,
        on_stall: Callable[[float, str], None] | None = None,
    ) -> None:
        self._observe = observe
        self._clock = clock
        self._on_stall = on_stall

    async def run(self) -> None:
        """Until it is cancelled."""
        watch = None
        if self._on_stall is not None:
            watch = StallWatch(threading.get_ident(), self._on_stall)
            watch.start()
        try:
            while True:
                due_s = self._clock() + INTERVAL_S
                if watch is not None:
                    watch.expect(INTERVAL_S)
                await anyio.sleep(INTERVAL_S)
                self._observe(max(0.0, self._clock() - due_s))
        finally:
            if watch is not None:
                watch.stop()
