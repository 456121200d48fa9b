"""The last resort of a shutdown: end the process with our own exit code just before the framework would.

The framework's hard stop ends the process with a code that says nothing. A thread that needs
neither the loop nor anybody's lock ends it one second earlier, with ours.
"""

from __future__ import annotations

import queue
import threading
import time

from service.last_words import Tell, end_now, tell_nobody
from service.stopping import StopSignals


class ExitGuard:
    """Armed by the first signal.

    The thread waits from the beginning: starting one takes locks that the main thread may hold at the
    moment a signal interrupts it. Of all queues only this one may be filled in a signal handler.
    """

    def __init__(self, signals: StopSignals, guard_at_s: float, tell: Tell = tell_nobody) -> None:
        self._tell = tell
        self._guard_at_s = guard_at_s
        self._asked: queue.SimpleQueue[int] = queue.SimpleQueue()
        signals.listen(self._asked.put)
        threading.Thread(target=self._watch, name="exit-guard", daemon=True).start()

    def _watch(self) -> None:
        self._asked.get()
        time.sleep(self._guard_at_s)
        end_now(f"still not stopped {self._guard_at_s:g} s after the signal", self._tell)
