"""What the commands read of a worker's answers. Keys that are not here are left alone."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

# More than a worker lives through; as words they are still short.
_Count = Annotated[int, Meta(ge=0, le=10**15)]
# What is left of a time that is just over may be less than none.
_Seconds = Annotated[float, Meta(ge=-1e9, le=1e9)]
# A state, a level, the name of a logger.
_Word = Annotated[str, Meta(max_length=1000)]
_MOST_TARGETS = 4096
_MOST_MEMORIES = 256


class Standing(Struct, frozen=True):
    """Where a worker is: what all but ``trace`` and ``log_level`` tell; of one that starts, less."""

    state: _Word
    live: _Count
    in_flight: _Count
    safe_to_delete: bool
    in_discovery: bool = False
    memory: _Word = "awake"
    asleep: Annotated[list[_Word], Meta(max_length=_MOST_MEMORIES)] = []


class Drained(Struct, frozen=True):
    """What ``drain`` tells besides, once it has one: a `protocols.telemetry.DrainReport`."""

    live_at_start: _Count
    completed: _Count
    ended_otherwise: _Count
    moved: _Count
    interrupted: _Count
    seconds: _Seconds


class Level(Struct, frozen=True):
    """How much one logger writes. None as a level: a file says it, which only the framework reads."""

    target: _Word
    level: _Word | None
    configured: _Word | None
    left_s: _Seconds | None


class Levels(Struct, frozen=True):
    """What ``log-level`` reads of its route's answer."""

    targets: Annotated[list[Level], Meta(max_length=_MOST_TARGETS)]
