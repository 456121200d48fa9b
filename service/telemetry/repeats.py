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
# Of one event, each with a key of its own, in ``EVERY_S``: keys may be what callers make up.
MOST_DIFFERENT = 16


class _Window:
    """What was said of one event since it began, whatever the keys."""

    __slots__ = ("ends_s", "held", "said")

    def __init__(self, ends_s: float, held: int) -> None:
        self.ends_s = ends_s
        self.said = 0
        # For want of room here, and not yet told with a message that went through.
        self.held = held


class RepeatLimiter:
    """Lets a message through once in ``every_s``, and remembers how many it held back. Any thread.

    Of one event at most `MOST_DIFFERENT` in that time. The table is bounded; the key that was let through
    longest ago makes room, and is then new again. Events are words of the code, so there are few.
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
        # Of each event and key: when it may be said again, and how often it was held back since.
        self._held: OrderedDict[tuple[str, Hashable], tuple[float, int]] = OrderedDict()
        self._windows: dict[str, _Window] = {}

    def admit(self, event: str, key: Hashable) -> int | None:
        """How many were held back before this one; None to hold this one back too."""
        now_s = self._clock()
        with self._lock:
            next_s, held = self._held.get((event, key), (now_s, 0))
            if now_s < next_s:
                self._held[event, key] = (next_s, held + 1)
                self.on_bound(Bound.LOG_REPEATS)
                return None
            window = self._window(event, now_s)
            if window.said >= MOST_DIFFERENT:
                window.held += 1
                self.on_bound(Bound.LOG_REPEATS)
                return None
            window.said += 1
            held, window.held = held + window.held, 0
            self._remember((event, key), now_s)
            return held

    def _window(self, event: str, now_s: float) -> _Window:
        window = self._windows.get(event)
        if window is None or now_s >= window.ends_s:
            window = _Window(now_s + self._every_s, 0 if window is None else window.held)
            self._windows[event] = window
        return window

    def _remember(self, key: tuple[str, Hashable], now_s: float) -> None:
        self._held[key] = (now_s + self._every_s, 0)
        self._held.move_to_end(key)
        if len(self._held) > MOST_KEYS:
            self._held.popitem(last=False)
            self.on_bound(Bound.LOG_KEYS)


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
        held = self._limiter.admit(record.name, record.lineno)
        if held is None:
            return
        if held:
            record.msg, record.args = f"{record.getMessage()} (and {held} times before)", None
        logging.getLogger().handle(record)
