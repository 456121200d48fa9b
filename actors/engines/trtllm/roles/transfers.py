"""KV caches that a prefill engine has handed over, and that a decode engine may still be reading.

TensorRT-LLM answers as soon as the transfer may begin, and says nothing afterwards. So an answer counts
until its own timing tells that the transfer is over, else for as long as the engine keeps the cache for it:
an engine that is stopped before takes the answers of others with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any


class PendingTransfers:
    """How many there may be. Event loop.

    timeout_s: how long the engine keeps a cache that nobody reads.
    """

    def __init__(self, clock: Callable[[], float], timeout_s: float) -> None:
        self._clock = clock
        self._timeout_s = timeout_s
        # Until when each counts; in order, as all wait equally long.
        self._ends_s: deque[float] = deque()

    def answered(self, timing: Any) -> None:
        """A prefill's answer has come; once each. timing: its ``timing_metrics``, or None."""
        if is_over(timing):
            return
        self._drop_ended()
        self._ends_s.append(self._clock() + self._timeout_s)

    @property
    def count(self) -> int:
        """Never too low."""
        self._drop_ended()
        return len(self._ends_s)

    def _drop_ended(self) -> None:
        now_s = self._clock()
        while self._ends_s and self._ends_s[0] <= now_s:
            self._ends_s.popleft()


def is_over(timing: Any) -> bool:
    """Whether a request's timing says that its KV cache has been read. What has not happened is at zero."""
    end: object = getattr(timing, "kv_cache_transfer_end", None)
    begin: object = getattr(timing, "kv_cache_transfer_start", None)
    if not isinstance(end, timedelta) or not isinstance(begin, timedelta):
        return False
    return end > timedelta() and end >= begin > timedelta()


def timing_of(output: Any) -> Any:
    """The ``timing_metrics`` of one of a result's outputs; None where the engine measured nothing."""
    return getattr(getattr(output, "request_perf_metrics", None), "timing_metrics", None)
