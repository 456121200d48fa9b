"""What happens in a worker's life, as the notifier hears of it: facts, and never anything of a request."""

from __future__ import annotations

from dataclasses import dataclass

from protocols.telemetry import WorkerState
from service.exit_codes import ExitCode


@dataclass(frozen=True, slots=True)
class Preparing:
    """main thread, then the engine's: what takes time before the worker can serve, in a few words."""

    what: str


@dataclass(frozen=True, slots=True)
class Planned:
    """main thread: what is about to be served, by which engine.

    hard_exit_s: how long after the first signal the process has ended in any case, seconds.
    """

    model: str
    engine: str
    hard_exit_s: float


@dataclass(frozen=True, slots=True)
class StateChanged:
    """graph: the worker moved on in its life."""

    state: WorkerState


@dataclass(frozen=True, slots=True)
class Listed:
    """event loop: frontends find this worker."""


@dataclass(frozen=True, slots=True)
class DrainProgress:
    """graph: so many requests are live, and so many seconds are left for them."""

    remaining: int
    left_s: float


@dataclass(frozen=True, slots=True)
class WaitingForScrape:
    """event loop: all is over, and the worker stays until somebody has seen how many requests were lost.

    left_s: for how long at most, seconds.
    """

    lost: int
    left_s: float


@dataclass(frozen=True, slots=True)
class Resting:
    """sleep coordinator: the engine's memory is given back, or all there again. how: its state in a word."""

    how: str
    is_awake: bool


@dataclass(frozen=True, slots=True)
class StopAsked:
    """signal handler. count: signals so far. first_s: when the first one came, monotonic."""

    count: int
    first_s: float | None


@dataclass(frozen=True, slots=True)
class Failed:
    """Whoever knows why this worker cannot serve. why: in words that hold nothing of a request."""

    why: str


@dataclass(frozen=True, slots=True)
class Ended:
    """main thread, last of all. code: None when an error took the place of one."""

    code: ExitCode | None


@dataclass(frozen=True, slots=True)
class LoopTurned:
    """event loop: it turns, and a sign of life is due."""


LifeEvent = (
    Preparing
    | Planned
    | StateChanged
    | Listed
    | DrainProgress
    | WaitingForScrape
    | Resting
    | StopAsked
    | Failed
    | Ended
)
Event = LifeEvent | LoopTurned
