"""The last resorts: threads that end the process when its event loop no longer can.

Neither needs the loop, or a lock that anybody else holds. The framework's hard stop ends the process with
a code that says nothing: `ExitGuard` is one second earlier, with ours. A loop that stands still for ever
would leave a worker in discovery that serves nobody: `LoopGuard` sees that.
"""

from __future__ import annotations

import asyncio
import os
import queue
import select
import threading
import time

from service.exit_codes import ExitCode
from service.stopping import StopSignals

_STDERR = 2
# A loop that stands still is looked at this often before it counts as hung. Looks are counted, not
# seconds: a process that was stopped and goes on finds one look missed, not a time-out passed.
_LOOKS = 10
# Less than this is a busy machine, whatever the engine's time-out is.
_SHORTEST_STAND_S = 10.0


class ExitGuard:
    """Armed by the first signal.

    The thread waits from the beginning: starting one takes locks that the main thread may hold at the
    moment a signal interrupts it. Of all queues only this one may be filled in a signal handler.
    """

    def __init__(self, signals: StopSignals, guard_at_s: float) -> None:
        self._guard_at_s = guard_at_s
        self._asked: queue.SimpleQueue[int] = queue.SimpleQueue()
        signals.listen(self._asked.put)
        threading.Thread(target=self._watch, name="exit-guard", daemon=True).start()

    def _watch(self) -> None:
        self._asked.get()
        time.sleep(self._guard_at_s)
        _say(
            f"dynamo-actor-worker: still not stopped {self._guard_at_s:g} s after the signal; "
            f"ending now with code {ExitCode.FORCED.value}\n"
        )
        os._exit(ExitCode.FORCED)


class LoopGuard:
    """Ends the process when its loop has made no turn for ``timeout_s``, and for 10 s at least.

    A driver that never comes back from a call, stuck in its library, takes the loop with it: no watchdog
    of ours runs any more, nor any handler of a signal. What ran here goes on elsewhere once we are gone.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout_s: float) -> None:
        self._loop = loop
        self._timeout_s = max(timeout_s, _SHORTEST_STAND_S)
        self._turned = threading.Event()
        self._over = threading.Event()
        threading.Thread(target=self._watch, name="loop-guard", daemon=True).start()

    def stop(self) -> None:
        """From here on the loop may stand still. Idempotent; any thread."""
        self._over.set()

    def _watch(self) -> None:
        looks = 0
        self._ask()
        # A turn is seen a look after it was made, and asked for again: one more on each side.
        while not self._over.wait(self._timeout_s / (_LOOKS + 2)):
            looks += 1
            if self._turned.is_set():
                looks = 0
                self._ask()
            elif looks > _LOOKS:
                _say(
                    f"dynamo-actor-worker: the event loop has stood still for {self._timeout_s:g} s; "
                    f"ending now with code {ExitCode.FORCED.value}\n"
                )
                os._exit(ExitCode.FORCED)

    def _ask(self) -> None:
        """Let the loop set the flag at its next turn."""
        self._turned.clear()
        try:
            self._loop.call_soon_threadsafe(self._turned.set)
        except RuntimeError:
            # The loop is closed: there is nothing left to stand still.
            self._over.set()


def _say(text: str) -> None:
    """Write to stderr unless that would wait: its reader may be what everybody is waiting for."""
    if select.select([], [_STDERR], [], 0)[1]:
        os.write(_STDERR, text.encode())
