"""Signals: noticed before anything else is installed, and never lost to anything later.

The framework has handlers of its own, which chain to ours. Ours note the time (every budget counts
from it) and how often the operator asked; once the framework's loop has returned both signals are
ignored, so that a late one cannot turn a clean exit into a death by signal.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """How the operator's wish to stop reaches the rest. One per process; main thread only.

    began_s: when this was made, as good as the process's beginning. first_s: when the first signal came, None
    before it; both monotonic. count: signals so far. owed_code: with which a signal has ended what was
    under way, None where none has.
    """

    def __init__(self) -> None:
        self.began_s = time.monotonic()
        self.first_s: float | None = None
        self.count = 0
        self._listeners: list[Callable[[int], None]] = []
        self._exit_code: int | None = None
        self.owed_code: int | None = None

    def install(self) -> None:
        """Take over SIGTERM and SIGINT. Call before the first import that takes time."""
        for number in STOP_SIGNALS:
            signal.signal(number, self._on_signal)

    def exit_at_once_with(self, code: int) -> None:
        """Until the framework runs nothing can be lost: a signal ends the process, with this code."""
        self._exit_code = code
        sys.unraisablehook = self._on_swallowed

    def leave_it_to_the_framework(self) -> None:
        """From now on a signal is noted and told to listeners; the framework shuts the worker down."""
        self._exit_code = self.owed_code = None
        sys.unraisablehook = sys.__unraisablehook__

    def listen(self, listener: Callable[[int], None]) -> None:
        """Call this with the count at every signal, in the main thread, between two instructions."""
        self._listeners.append(listener)

    def ignore_from_now(self) -> None:
        """The exit code is decided: nothing may change it."""
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    @property
    def is_asked(self) -> bool:
        """Whether somebody asked us to stop."""
        return self.count > 0

    @property
    def is_forced(self) -> bool:
        """Whether somebody asked twice: no more waiting."""
        return self.count > 1

    def note(self) -> None:
        """A stop was asked for by other means (our own death path)."""
        self.count += 1
        if self.first_s is None:
            self.first_s = time.monotonic()

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.note()
        for listener in self._listeners:
            listener(self.count)
        if self._exit_code is not None:
            self.owed_code = self._exit_code
            raise SystemExit(self._exit_code)

    def _on_swallowed(self, what: sys.UnraisableHookArgs) -> None:
        """No exception leaves a finalizer or the callback of a weak reference, and so does not our exit."""
        if what.exc_type is SystemExit and self._exit_code is not None:
            os._exit(self._exit_code)
        sys.__unraisablehook__(what)
