"""Processes that the library has started: found in /proc, and ended when it does not end them itself."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from pathlib import Path

_PROC = Path("/proc")
# What a terminal sends to everybody at Ctrl-C, and a supervisor that knows no better to end a service.
_FOR_ALL = {signal.SIGINT, signal.SIGTERM}
_LOOK_S = 0.02


def descendants(pid: int) -> set[int]:
    """All processes below this one, children of children too."""
    found: set[int] = set()
    pending = [pid]
    while pending:
        for child in _children(pending.pop()):
            if child not in found:
                found.add(child)
                pending.append(child)
    return found


@contextmanager
def out_of_reach() -> Generator[None]:
    """The thread that starts processes: a signal to the whole group does not reach them.

    They inherit what this thread does not want to hear. Whoever leads them hears it, finishes what is under
    way, and ends them; until then the requests of a worker that drains need them.
    """
    # Its start would make this thread hear them again; once it runs it does not.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _FOR_ALL)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_all(pids: set[int], patience_s: float) -> int:
    """Ask them to end, and kill those that have not after ``patience_s``. Blocks. Returns how many."""
    _send(pids, signal.SIGTERM)
    until_s = time.monotonic() + patience_s
    while (left := living(pids)) and time.monotonic() < until_s:
        time.sleep(_LOOK_S)
    _send(left, signal.SIGKILL)
    return len(left)


def living(pids: set[int]) -> set[int]:
    """Those that have not ended."""
    return {pid for pid in pids if _is_alive(pid)}


def _children(pid: int) -> list[int]:
    """By the threads that started them: what one of those is not known by any other."""
    found: list[int] = []
    with suppress(OSError):
        for task in (_PROC / str(pid) / "task").iterdir():
            with suppress(OSError):
                found += [int(word) for word in (task / "children").read_text().split()]
    return found


def _is_alive(pid: int) -> bool:
    """A zombie has ended; whoever started it may collect it."""
    with suppress(OSError):
        # The name, in parentheses, may hold anything.
        state = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
        return state not in {"Z", "X"}
    return False


def _send(pids: set[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
