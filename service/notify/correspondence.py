"""What is said to the service manager, what it has not taken yet, and the time that is asked of it."""

from __future__ import annotations

from collections.abc import Callable

from service.notify import complaints
from service.notify.datagrams import Datagrams
from service.notify.events import Event, LoopTurned
from service.notify.stages import Life, MoreTime

# How often the manager's time-out is put off, where it is.
EVERY_S = 5.0
# By how much: a start that does not move any more has this long to begin again, and a shutdown whose process
# was stopped has missed two of ours.
START_MORE_S = 120.0
STOP_MORE_S = 15.0


class Correspondence:
    """What is said, and what is still to be said. One thread; the time is given in, monotonic seconds."""

    def __init__(self, datagrams: Datagrams, has_moved: Callable[[float], bool]) -> None:
        self._datagrams = datagrams
        self._has_moved = has_moved
        self._has_complained = False
        self.life = Life()
        # That there is somebody is the first news.
        self._has_news = True
        self._unsent = {"STATUS": self.life.status}

    @property
    def is_up_to_date(self) -> bool:
        """Whether the manager knows all there is to know."""
        return not self._unsent

    def hear(self, event: Event, now_s: float) -> None:
        """Something has happened; say what is new about it."""
        if isinstance(event, LoopTurned):
            # One that cannot be sent is not sent later: by then it says nothing about the loop.
            self._datagrams.send(b"WATCHDOG=1")
            return
        news = self.life.hear(event)
        if not news:
            return
        self._has_news = True
        self._unsent |= news
        if "STOPPING" in self._unsent:
            self._unsent.pop("READY", None)
        self.send()
        if "STOPPING" in news:
            self.ask_for_time(now_s)

    def send(self) -> None:
        """All that was not sent yet, as one datagram, so that it is taken as a whole."""
        if not self._unsent:
            return
        if self._datagrams.send(datagram(self._unsent)):
            self._unsent.clear()
        elif not self._has_complained:
            self._has_complained = True
            complaints.not_taken(self._datagrams.last_error)

    def ask_for_time(self, now_s: float, since_s: float = EVERY_S) -> None:
        """Put the manager's time-out off, where the stage has a right to it. since_s: the last time."""
        more_s = self._more_s(now_s, since_s)
        self._has_news = False
        if more_s > 0:
            self._datagrams.send(datagram({"EXTEND_TIMEOUT_USEC": str(int(more_s * 1_000_000))}))

    def _more_s(self, now_s: float, since_s: float) -> float:
        match self.life.more_time:
            case MoreTime.NONE:
                return 0.0
            case MoreTime.WHILE_IT_MOVES:
                has_moved = self._has_moved(since_s)
                return START_MORE_S if has_moved or self._has_news else 0.0
            case MoreTime.TO_THE_HARD_EXIT:
                exit_by_s = self.life.exit_by_s
                return 0.0 if exit_by_s is None else min(STOP_MORE_S, exit_by_s - now_s)


def datagram(assignments: dict[str, str]) -> bytes:
    """Assignments as the manager reads them. What is no text in UTF-8 is replaced: else it drops the line."""
    lines = "\n".join(f"{name}={value}" for name, value in assignments.items())
    return lines.encode("utf-8", errors="replace")
