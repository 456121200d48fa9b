"""Is the engine hung? Something to do, and neither a step nor any other sign of life for too long.

Not a hang: an engine that has nothing to do, one whose every request is held back by its reader, one
that computes a single long step (its `progress` moves), and the time before the worker's very first step
(kernels compile, caches fill).
"""

from __future__ import annotations

# A hang is this many looks in a row without a sign. Looks are counted, not seconds: a process that
# was stopped and goes on finds one look missed, not a time-out passed.
_LOOKS = 10


class HangWatch:
    """Told of every step; looks now and then whether one is owed."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._has_stepped = False
        self._looks = 0
        self._progress = 0

    @property
    def pause_s(self) -> float:
        """How long to wait between two looks, in seconds."""
        return self._timeout_s / _LOOKS

    def is_moving(self, progress: int) -> bool:
        """Whether the engine has shown life, or owed nothing, since the last look but one.

        Never before its very first step. progress: as for `look`.
        """
        return self._has_stepped and (self._looks <= 1 or progress != self._progress)

    def stepped(self) -> None:
        """The engine made a step: whatever there was to wait for has moved."""
        self._has_stepped = True
        self._looks = 0

    def look(self, *, is_owed: bool, progress: int) -> bool:
        """Whether the engine is hung. ``is_owed``: it has something to do now. Call every ``pause_s``.

        progress: `protocols.engine.Engine.progress` at this moment.
        """
        if not is_owed or not self._has_stepped or progress != self._progress:
            self._looks = 0
        self._progress = progress
        if not is_owed or not self._has_stepped:
            return False
        self._looks += 1
        return self._looks > _LOOKS
