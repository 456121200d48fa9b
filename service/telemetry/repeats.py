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


def quiet_library(name: str) -> None:
    """Let a library that repeats itself say the same thing once a minute. Idempotent.

    Everything below the logger ``name`` passes one handler on its way to the root's. "The same thing" is
    a place in its code, since its texts carry delays and addresses.
    """
    logger = logging.getLogger(name)
    if not any(isinstance(handler, _Forwarder) for handler in logger.handlers):
        logger.addHandler(_Forwarder())
        logger.propagate = False


class _Forwarder(logging.Handler):
    """Hands records on to the root logger's handlers, whoever they are by then."""

    def __init__(self) -> None:
        super().__init__()
        self._limiter = RepeatLimiter()

    def emit(self, record: logging.LogRecord) -> None:
        """Let it through, or count it."""
        held = self._limiter.admit((record.name, record.lineno))
        if held is None:
            return
        if held:
            record.msg, record.args = f"{record.getMessage()} (and {held} times before)", None
        logging.getLogger().handle(record)
