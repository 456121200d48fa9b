"""Is the engine hung? Requests in flight, and no step for too long.

Not a hang: an engine that has nothing to do, one whose every request is held back by its reader,
and the time before the worker's very first step (kernels compile, caches fill).
"""

from __future__ import annotations

from collections.abc import Callable


class HangWatch:
    """Told of every step; asked now and then. Monotonic seconds."""

    def __init__(self, timeout_s: float, clock: Callable[[], float]) -> None:
        self._timeout_s = timeout_s
        self._clock = clock
        self._has_stepped = False
        self._since_s: float | None = None

    @property
    def pause_s(self) -> float:
        """How often to ask, so that a hang is noticed within a tenth more than the time-out."""
        return self._timeout_s / 10

    def stepped(self) -> None:
        """The engine made a step: whatever there was to wait for has moved."""
        self._has_stepped = True
        self._since_s = None

    def is_hung(self, *, is_owed: bool) -> bool:
        """Whether the engine has owed a step for longer than the time-out. ``is_owed``: it owes one now."""
        if not is_owed or not self._has_stepped:
            self._since_s = None
            return False
        now_s = self._clock()
        if self._since_s is None:
            self._since_s = now_s
        return now_s - self._since_s >= self._timeout_s
