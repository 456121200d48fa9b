"""Whether a start is getting on: does this process, or one that it has started, compute, read or write?

The manager's time-out for a start is meant for one that is stuck. How long a model takes to come from a slow
disk nobody can say beforehand, but a start that waits for ever uses neither processor nor disk. One that
spins for ever does; it is not told from one that computes.
"""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc")
# In one look: what a waiting process with its timers uses is a tenth of this (measured: 0.1 % of a core).
LEAST_CPU_SHARE = 0.02
LEAST_BYTES = 1 << 20
# Places in /proc/<pid>/stat behind the name: processor time of its own, and of children that have ended.
_CPU_FIELDS = slice(11, 15)
_BYTES = ("rchar:", "wchar:", "read_bytes:")


class Motion:
    """Looks at a family of processes now and then. One thread. ``proc``: another /proc for tests."""

    def __init__(self, pid: int | None = None, proc: Path = _PROC) -> None:
        self._pid = os.getpid() if pid is None else pid
        self._proc = proc
        self._tick_s = 1.0 / os.sysconf("SC_CLK_TCK")
        self._cpu_s, self._bytes = self._spent()

    def has_moved(self, within_s: float) -> bool:
        """Since the last look, ``within_s`` ago. Where nothing can be seen, it has: we are no judge then."""
        cpu_s, read_or_written = self._spent()
        # A process that has ended takes its figures away; that, too, is getting on.
        by_cpu_s, by_bytes = abs(cpu_s - self._cpu_s), abs(read_or_written - self._bytes)
        self._cpu_s, self._bytes = cpu_s, read_or_written
        return not cpu_s or by_cpu_s >= LEAST_CPU_SHARE * within_s or by_bytes >= LEAST_BYTES

    def _spent(self) -> tuple[float, int]:
        """Seconds of processor time, and bytes, of all of the family that is there."""
        cpu_s, read_or_written, pending = 0.0, 0, [self._pid]
        while pending:
            folder = self._proc / str(pending.pop())
            cpu_s += self._cpu_of(folder)
            read_or_written += _bytes_of(folder)
            pending += _children_of(folder)
        return cpu_s, read_or_written

    def _cpu_of(self, folder: Path) -> float:
        # The name in front of the last parenthesis may hold anything.
        fields = _text(folder / "stat").rpartition(")")[2].split()
        return sum(int(ticks) for ticks in fields[_CPU_FIELDS]) * self._tick_s


def _bytes_of(folder: Path) -> int:
    lines = (line.split() for line in _text(folder / "io").splitlines())
    return sum(int(words[1]) for words in lines if words[0] in _BYTES)


def _children_of(folder: Path) -> list[int]:
    try:
        tasks = list((folder / "task").iterdir())
    except OSError:
        return []
    return [int(pid) for task in tasks for pid in _text(task / "children").split()]


def _text(file: Path) -> str:
    """Empty for a process that is gone, or is none of our business."""
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
