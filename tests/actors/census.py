"""What a player has done to a graph so far, and to whom: what its promises depend on."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import sniffio
import trio.lowlevel

from protocols.steps import EngineId

if TYPE_CHECKING:
    from tests.actors.stories import Ask, Kind

# Of every graph that is played on.
STALL_S = 20.0
HANG_S = 10.0
DEADLINE_S = 2.5
# Sums of times are not exact.
DUST_S = 1e-6


def living_tasks() -> int:
    """Tasks of trio, its own included; asyncio's are not counted."""
    if sniffio.current_async_library() != "trio":
        return 0
    return trio.lowlevel.current_statistics().tasks_living


@dataclass(slots=True)
class Census:
    """The player writes it, the judge reads it.

    unprepared: constraints that were refused or broke something while they were prepared. pulling: who waits
    for its next chunk. waited: tokens that lay in an outbox when everything was last at rest (the judge's).
    rivals: probes that came while another one was there. drain_ends_s, on the graph's clock: None before the
    first drain. doom: what the graph is to die of, once it is.
    """

    asks: dict[EngineId, Ask] = field(default_factory=dict["EngineId", "Ask"])
    kinds: dict[EngineId, Kind] = field(default_factory=dict["EngineId", "Kind"])
    constraints: dict[EngineId, object] = field(default_factory=dict[EngineId, object])
    left: set[EngineId] = field(default_factory=set[EngineId])
    spoiled: set[EngineId] = field(default_factory=set[EngineId])
    finished: set[EngineId] = field(default_factory=set[EngineId])
    pulling: set[EngineId] = field(default_factory=set[EngineId])
    rivals: set[EngineId] = field(default_factory=set[EngineId])
    waited: Counter[EngineId] = field(default_factory=Counter[EngineId])
    unprepared: set[object] = field(default_factory=set[object])
    drain_ends_s: float | None = None
    last_drained: EngineId = field(default_factory=lambda: EngineId(0))
    signals: int = 0
    doom: type[Exception] | None = None
    tasks_when_open: int = 0
