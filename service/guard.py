"""The last resort: end the process with our own exit code just before the framework would.

The framework's hard stop ends the process with a code that says nothing. A thread that needs
neither the loop nor the interpreter's goodwill ends it one second earlier, with ours.
"""

from __future__ import annotations

import os
import sys
import threading

from service.exit_codes import ExitCode
from service.stopping import StopSignals


class ExitGuard:
    """Armed by the first signal."""

    def __init__(self, signals: StopSignals, guard_at_s: float) -> None:
        self._guard_at_s = guard_at_s
        self._timer: threading.Timer | None = None
        signals.listen(self._on_signal)

    def _on_signal(self, count: int) -> None:
        if count == 1:
            self._timer = threading.Timer(self._guard_at_s, self._end)
            self._timer.daemon = True
            self._timer.start()

    def _end(self) -> None:
        sys.stderr.write(
            f"dynamo-actor-worker: still not stopped {self._guard_at_s:g} s after the signal; "
            f"ending now with code {ExitCode.FORCED.value}\n"
        )
        sys.stderr.flush()
        os._exit(ExitCode.FORCED)
