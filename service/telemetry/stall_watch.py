"""Where the event loop is while it stands still: seen from a thread of its own, said while it lasts.

A histogram says that something was late once it is over; this says which line kept everybody waiting, also
when it never comes back. What keeps the interpreter's lock all the time is not seen before it lets go.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

# How late a heartbeat must be to count as standing still, and how often that is looked at.
STANDS_S = 1.0
LOOK_S = 0.25
# Innermost frames that are shown.
MOST_FRAMES = 8


class StallWatch:
    """Expects heartbeats of one thread, and says once of each stall where that thread is.

    thread_id: the loop's thread. on_stall: told, in the watch's own thread, for how many seconds the
    heartbeat has been missing, and the innermost frames as ``file:line function``: places, no values.
    clock: monotonic seconds.
    """

    def __init__(
        self,
        thread_id: int,
        on_stall: Callable[[float, str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._thread_id = thread_id
        self._on_stall = on_stall
        self._clock = clock
        self._due_s = math.inf
        self._said_s = math.inf
        self._looked_s = clock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="stall-watch", daemon=True)

    def start(self) -> None:
        """Begin to look. Once only."""
        self._thread.start()

    def expect(self, within_s: float) -> None:
        """The loop: a heartbeat now, and the next one in so many seconds."""
        self._due_s = self._clock() + within_s

    def stop(self) -> None:
        """Look no more. Any thread; idempotent; does not wait."""
        self._over.set()

    def look(self) -> None:
        """The watch's thread: once every `LOOK_S`."""
        now_s, due_s = self._clock(), self._due_s
        # Who was not looking himself, because the whole process was stopped, has nothing to say.
        was_here, self._looked_s = now_s - self._looked_s < STANDS_S, now_s
        if was_here and now_s - due_s > STANDS_S and due_s != self._said_s:
            self._said_s = due_s
            frame = sys._current_frames().get(self._thread_id)  # pyright: ignore[reportPrivateUsage] - no other way
            if frame is not None:
                self._on_stall(now_s - due_s, places_of(frame))

    def _watch(self) -> None:
        while not self._over.wait(LOOK_S):
            self.look()


def places_of(frame: FrameType | None) -> str:
    """What runs, and who called it: the innermost frames, innermost first."""
    places: list[str] = []
    while frame is not None and len(places) < MOST_FRAMES:
        code = frame.f_code
        places.append(f"{PurePath(code.co_filename).name}:{frame.f_lineno} {code.co_name}")
        frame = frame.f_back
    return " < ".join(places)
