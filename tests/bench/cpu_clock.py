"""The CPU time of another process, from the kernel's own clock for it.

It is what ``/proc/PID/stat`` calls utime + stime, in nanoseconds instead of ticks of 10 ms. Threads that have
ended are in it.
"""

from __future__ import annotations

import time

# From the kernel's posix-timers.h: the inverted pid, and which of its clocks (scheduler time, all threads).
_PID_SHIFT = 3
_WHOLE_PROCESS = 2


def cpu_s(pid: int) -> float:
    """Seconds of CPU the process has used, on all cores. Raises OSError when there is no such process."""
    return time.clock_gettime((~pid << _PID_SHIFT) | _WHOLE_PROCESS)
