"""One piece of foreign work, and the one way there is to end it from outside."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable

_raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc


class Interrupted(BaseException):
    """Raised inside a job whose time is up, wherever it is in its own Python code."""


class Job:
    """Made and looked at by the engine's thread, performed once in another one.

    names: whose code it is. is_late: nobody waits for it any more. is_alone: it has a thread of its own,
    because it was known to be slow or took longer than its turn. error: what it raised. took_s: seconds
    it took, once it is done.
    """

    __slots__ = (
        "_guard",
        "_run",
        "_thread_id",
        "_was_interrupted",
        "error",
        "is_alone",
        "is_done",
        "is_late",
        "is_unwanted",
        "names",
        "started_s",
        "took_s",
    )

    def __init__(self, run: Callable[[], None], names: tuple[str, ...] = ()) -> None:
        self._run = run
        self.names = names
        self.started_s: float | None = None
        self.took_s = 0.0
        self.is_done = False
        self.is_late = False
        self.is_alone = False
        # Its request has ended: it need not even begin.
        self.is_unwanted = False
        self.error: BaseException | None = None
        self._thread_id: int | None = None
        self._was_interrupted = False
        # A plain lock: entering a condition can be interrupted between taking its lock and saying so.
        self._guard = threading.Lock()

    def perform(self) -> None:
        """In its thread. Whatever the work raises is kept; afterwards nothing can be interrupted any more."""
        started_s = time.monotonic()
        try:
            self._thread_id = threading.get_ident()
            try:
                if not self.is_unwanted:
                    self._run()
            except BaseException as exc:
                # Whatever foreign code raises belongs to the request that brought it along.
                self.error = exc
            self._leave()
        except Interrupted as exc:
            # It came between the work's end and ours. There is only one.
            self.error = self.error or exc
            self._leave()
        self.took_s = time.monotonic() - started_s

    def interrupt(self) -> None:
        """Any thread: raise Interrupted in it, once, if it is at work.

        Python code ends by that, also an endless loop; a call into C only when it comes back.
        """
        with self._guard:
            if self._thread_id is not None and not self._was_interrupted:
                self._was_interrupted = True
                _raise_in(ctypes.c_ulong(self._thread_id), ctypes.py_object(Interrupted))

    def _leave(self) -> None:
        with self._guard:
            self._thread_id = None
        if self._was_interrupted:
            # Sent, and perhaps not yet raised: the thread must not stumble over it later.
            _stumble_now()


def _stumble_now() -> None:
    """Raise what is pending in this thread here, or one more, and go on.

    It cannot be taken back: for what was sent and is gone without having been raised, CPython 3.11 looks
    for ever, at every jump of every thread, and whoever traces this process never gets past a line.
    """
    try:
        _raise_in(ctypes.c_ulong(threading.get_ident()), ctypes.py_object(Interrupted))
        while True:
            pass
    except Interrupted:
        return
