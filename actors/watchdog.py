"""Is the engine hung? Requests in flight, and no step for too long.

Not a hang: an engine that has nothing to do, one whose every request is held back by its reader,
and the time before the worker's very first step (kernels compile, caches fill).
"""

from __future__ import annotations

# A hang is this many looks in a row without a step. Looks are counted, not seconds: a process that
# was stopped and goes on finds one look missed, not a time-out passed.
_LOOKS = 10


class HangWatch:
    """Told of every step; looks now and then whether one is owed."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._has_stepped = False
        self._looks = 0

    @property
    def pause_s(self) -> float:
        """How long to wait between two looks, in seconds."""
        return self._timeout_s / _LOOKS

    @property
    def is_moving(self) -> bool:
        """Whether the engine has shown life since the last look but one."""
        return self._has_stepped and self._looks <= 1

    def stepped(self) -> None:
        """The engine made a step: whatever there was to wait for has moved."""
        self._has_stepped = True
        self._looks = 0

    def look(self, *, is_owed: bool) -> bool:
        """Whether the engine is hung. ``is_owed``: it has something to do now. Call every ``pause_s``."""
        if not is_owed or not self._has_stepped:
            self._looks = 0
            return False
        self._looks += 1
        return self._looks > _LOOKS
