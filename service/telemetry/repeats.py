"""Saying the same thing again and again, but not more often than anyone wants to read it."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING

from protocols.bounds import Bound, ignore_bound

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from protocols.bounds import OnBound

EVERY_S = 60.0
MOST_KEYS = 256


class RepeatLimiter:
    """Lets a message through once in ``every_s``, and remembers how many it held back. Any thread.

    The table is bounded; the key that was let through longest ago makes room, and is then new again.
    on_bound: told of every message that was held back, and of every key that made room.
    """

    def __init__(
        self,
        every_s: float = EVERY_S,
        clock: Callable[[], float] = time.monotonic,
        on_bound: OnBound = ignore_bound,
    ) -> None:
        self.on_bound = on_bound
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
                self.on_bound(Bound.LOG_REPEATS)
                return None
            self._held[key] = (now_s + self._every_s, 0)
            self._held.move_to_end(key)
            if len(self._held) > MOST_KEYS:
                self._held.popitem(last=False)
                self.on_bound(Bound.LOG_KEYS)
            return held


def quiet_library(name: str, on_bound: OnBound = ignore_bound) -> None:
    """Let a library that repeats itself say the same thing once a minute. Idempotent.

    on_bound: see `RepeatLimiter`; of several, the first one is told.

    Everything below the logger ``name`` passes one handler on its way to the root's. "The same thing" is
    a place in its code, since its texts carry delays and addresses.
    """
    logger = logging.getLogger(name)
    if not any(isinstance(handler, _Forwarder) for handler in logger.handlers):
        logger.addHandler(_Forwarder(on_bound))
        logger.propagate = False


class _Forwarder(logging.Handler):
    """Hands records on to the root logger's handlers, whoever they are by then."""

    def __init__(self, on_bound: OnBound) -> None:
        super().__init__()
        self._limiter = RepeatLimiter(on_bound=on_bound)

    def emit(self, record: logging.LogRecord) -> None:
        """Let it through, or count it."""
        held = self._limiter.admit((record.name, record.lineno))
        if held is None:
            return
        if held:
            record.msg, record.args = f"{record.getMessage()} (and {held} times before)", None
        logging.getLogger().handle(record)
