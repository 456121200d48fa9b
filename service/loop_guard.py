"""The last resort while serving: end a process whose event loop stands still for ever.

It would stay in discovery and serve nobody. A driver that never comes back from a call, stuck in its
library, takes the loop with it: no watchdog of ours runs any more, nor any handler of a signal.
"""

from __future__ import annotations

import asyncio
import threading

from service.last_words import Tell, end_now, tell_nobody

# A loop that stands still is looked at this often before it counts as hung. Looks are counted, not
# seconds: a process that was stopped and goes on finds one look missed, not a time-out passed.
_LOOKS = 12
# A turn right after a look is seen at the next one: how much later than the time-out the end may come.
LATEST = (_LOOKS + 1) / _LOOKS
# Less than this is a busy machine, whatever the engine's time-out is.
_SHORTEST_STAND_S = 10.0


class LoopGuard:
    """Ends the process when its loop has made no turn for ``timeout_s``, and for 10 s at least.

    What ran here goes on elsewhere once we are gone.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout_s: float, tell: Tell = tell_nobody) -> None:
        self._tell = tell
        self._loop = loop
        self._timeout_s = max(timeout_s, _SHORTEST_STAND_S)
        self._turned = threading.Event()
        self._over = threading.Event()
        threading.Thread(target=self._watch, name="loop-guard", daemon=True).start()

    @property
    def longest_s(self) -> float:
        """For how long at most a loop may stand still before the process is ended."""
        return self._timeout_s * LATEST

    def stop(self) -> None:
        """From here on the loop may stand still. Idempotent; any thread."""
        self._over.set()

    def _watch(self) -> None:
        looks = 0
        self._ask()
        while not self._over.wait(self._timeout_s / _LOOKS):
            looks += 1
            if self._turned.is_set():
                looks = 0
                self._ask()
            elif looks >= _LOOKS:
                end_now(f"the event loop has stood still for {self._timeout_s:g} s", self._tell)

    def _ask(self) -> None:
        """Let the loop set the flag at its next turn."""
        self._turned.clear()
        try:
            self._loop.call_soon_threadsafe(self._turned.set)
        except RuntimeError:
            # The loop is closed: there is nothing left to stand still.
            self._over.set()
