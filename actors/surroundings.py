"""What the graph stands in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from actors.wakeup import EventWakeup, Wakeup
from protocols.engine import Engine
from protocols.kv_listener import KvListener, NullKvListener
from protocols.telemetry import Telemetry


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the graph needs from outside.

    clock: monotonic seconds, the clock that engine steps are stamped with.
    on_crash: called in the loop when an actor or the engine broke; the actors have ended, live
    requests have not yet got their error, the engine has not yet been stopped.
    """

    engine: Engine
    telemetry: Telemetry
    clock: Callable[[], float]
    on_crash: Callable[[BaseException], None]
    new_wakeup: Callable[[], Wakeup] = EventWakeup
    kv_listener: KvListener = field(default_factory=NullKvListener)
