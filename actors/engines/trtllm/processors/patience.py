"""How long the engine's process waits for an operator's code, which holds up everybody there.

TensorRT-LLM calls a logits processor between two steps of the whole batch, in its only loop. Code that does
not come back would be a hung engine; so a second thread interrupts it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from actors.engines.foreign.side_job import Interrupted, Job

# As in engine torch: a request whose processor does not answer for this long is failed.
GIVE_UP_S = 10.0
# How often is looked, and for how many looks the thread stays when there is nothing to look at.
_LOOKS = 10
_IDLE_LOOKS = 100


class TookTooLong(Exception):
    """The code was interrupted."""


class Patience:
    """One for a process. Its thread is a daemon that comes and goes with the calls.

    limit_s: how long a call may take, in seconds. clock: monotonic seconds.
    """

    def __init__(self, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit_s = limit_s
        self._clock = clock
        self._lock = threading.Lock()
        self._under_way: dict[int, tuple[Job, float]] = {}
        self._thread: threading.Thread | None = None

    def perform(self, work: Callable[[], None]) -> None:
        """Do it here and now. Raises what it raises, and TookTooLong after it was interrupted.

        Python code ends by that; a call into C only when it comes back.
        """
        job = Job(work)
        self._under_way[id(job)] = job, self._clock()
        self._be_watchful()
        try:
            job.perform()
        finally:
            del self._under_way[id(job)]
        error, job.error = job.error, None
        if isinstance(error, Interrupted):
            raise TookTooLong
        try:
            if error is not None:
                raise error
        finally:
            # It knows this frame: a circle would keep the request's rows, in a process that may collect none.
            del error, job, work

    def look(self) -> None:
        """Interrupt what has been under way for too long."""
        now_s = self._clock()
        for job, begun_s in tuple(self._under_way.values()):
            if now_s - begun_s > self.limit_s:
                job.interrupt()

    def _be_watchful(self) -> None:
        # Read without the lock for speed: a thread that is about to leave looks once more with it.
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(
                        target=self._watch, name="processor-patience", daemon=True
                    )
                    self._thread.start()

    def _watch(self) -> None:
        idle = 0
        while True:
            time.sleep(self.limit_s / _LOOKS)
            self.look()
            idle = 0 if self._under_way else idle + 1
            if idle < _IDLE_LOOKS:
                continue
            with self._lock:
                if not self._under_way:
                    self._thread = None
                    return
