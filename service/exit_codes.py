"""How the process ends, as numbers. 134 and 143 are never ours: they would be bugs."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The codes of sysexits.h where one fits."""

    PLANNED = 0
    UNEXPECTED = 1
    CONFIGURATION = 2
    # EX_UNAVAILABLE: a dependency (etcd, NATS, the model, a GPU) cannot be had at the start.
    UNAVAILABLE = 69
    # EX_SOFTWARE: a second signal, or the engine is dead.
    FORCED = 70
