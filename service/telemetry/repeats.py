"""Saying the same thing again and again, but not more often than anyone wants to read it."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

EVERY_S = 60.0
_MOST_KEYS = 256


class RepeatLimiter:
    """Lets a message through once in ``every_s``, and remembers how many it held back. Any thread.

    The table is bounded; the key that was let through longest ago makes room, and is then new again.
    """

    def __init__(self, every_s: float = EVERY_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._every_s = every_s
        self._clock = clock
        self._lock = Lock()
        # Of each key: when it may be said again, and how often it was held back since.
        self._held: OrderedDict[Hashable, tuple[float, int]] = OrderedDict()

    def admit(self, key: Hashable) -> int | None:
        """How many were held back before this one; None to hold this one back too."""
        now_s = self._clock()
        with self._lock:
            next_s, held = self._held.get(key, (now_s, 0))
            if now_s < next_s:
                self._held[key] = (next_s, held + 1)
                return None
            self._held[key] = (now_s + self._every_s, 0)
            self._held.move_to_end(key)
            if len(self._held) > _MOST_KEYS:
                self._held.popitem(last=False)
            return held


class RepeatFilter(logging.Filter):
    """For the logger of a library that repeats itself: one record per place in its code and minute."""

    def __init__(self) -> None:
        super().__init__()
        self._limiter = RepeatLimiter()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is let through; it says how many like it were not."""
        held = self._limiter.admit((record.name, record.lineno))
        if held:
            record.msg = f"{record.msg} (and {held} times before)"
        return held is not None
