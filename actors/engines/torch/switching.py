"""Python's threads take turns of 5 ms: too long where a step runs beside somebody's endless loop.

After every operator of torch the engine's thread asks for the interpreter again, and waits for whoever
has it. With short turns, measured, a step beside a loop takes twice its time instead of five times.
"""

from __future__ import annotations

import sys
import threading

_TURN_S = 0.0005


class ShortTurns:
    """The interpreter's turns are short from the first `begin` to the last `end`. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted = 0
        self._before_s = 0.0

    def begin(self) -> None:
        """Somebody's code runs alone."""
        with self._lock:
            if self._wanted == 0:
                self._before_s = sys.getswitchinterval()
                sys.setswitchinterval(min(self._before_s, _TURN_S))
            self._wanted += 1

    def end(self) -> None:
        """It is back."""
        with self._lock:
            self._wanted -= 1
            if self._wanted == 0:
                sys.setswitchinterval(self._before_s)


SHORT_TURNS = ShortTurns()
"""One for the process, as the interpreter is."""
