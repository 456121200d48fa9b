"""The stages of a worker's life as a service manager knows them, and what is said when: no socket, no clock.

The worker's own states say where the graph is. A manager wants to know three things beyond that: whether
frontends find the worker (READY), whether it is on its way out (STOPPING), and how much longer that may take.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import assert_never

from protocols.telemetry import WorkerState
from service.exit_codes import ExitCode
from service.notify.events import (
    DrainProgress,
    Ended,
    Failed,
    LifeEvent,
    Listed,
    Planned,
    Preparing,
    Resting,
    StateChanged,
    StopAsked,
    WaitingForScrape,
)

# Characters of a status line.
LONGEST = 200


class Stage(StrEnum):
    """Where the worker is. DRAINING, DRAINED and SLEEPING are by hand: for a manager it is in service."""

    STARTING = "starting"
    LOADING = "loading"
    REGISTERING = "registering"
    SERVING = "serving"
    DRAINING = "draining"
    DRAINED = "drained"
    SLEEPING = "sleeping"
    STOPPING = "stopping"
    FAILED = "failed"
    ENDED = "ended"


class MoreTime(Enum):
    """How long a stage may go on beyond the manager's own time-out."""

    NONE = "none"
    WHILE_IT_MOVES = "while it moves"
    TO_THE_HARD_EXIT = "to the hard exit"


@dataclass(frozen=True, slots=True)
class Row:
    """status: its words. says: what is said once a life, when the stage is first entered."""

    status: str
    says: str | None
    more_time: MoreTime


ROWS: dict[Stage, Row] = {
    Stage.STARTING: Row("starting", None, MoreTime.WHILE_IT_MOVES),
    Stage.LOADING: Row("loading", None, MoreTime.WHILE_IT_MOVES),
    Stage.REGISTERING: Row("loaded, not in discovery yet", None, MoreTime.WHILE_IT_MOVES),
    Stage.SERVING: Row("serving", "READY", MoreTime.NONE),
    Stage.DRAINING: Row("draining", None, MoreTime.NONE),
    Stage.DRAINED: Row("drained", None, MoreTime.NONE),
    Stage.SLEEPING: Row("sleeping", None, MoreTime.NONE),
    Stage.STOPPING: Row("stopping", "STOPPING", MoreTime.TO_THE_HARD_EXIT),
    Stage.FAILED: Row("failed", "STOPPING", MoreTime.TO_THE_HARD_EXIT),
    Stage.ENDED: Row("", None, MoreTime.NONE),
}

_WAYS_OUT = frozenset({Stage.STOPPING, Stage.FAILED, Stage.ENDED})
_BY_HAND = frozenset({Stage.DRAINING, Stage.DRAINED, Stage.SLEEPING})
# What is not here is an event that comes too late to say anything new.
NEXT: dict[Stage, frozenset[Stage]] = {
    Stage.STARTING: frozenset({Stage.LOADING}) | _WAYS_OUT,
    Stage.LOADING: frozenset({Stage.REGISTERING}) | _WAYS_OUT,
    Stage.REGISTERING: frozenset({Stage.SERVING}) | _BY_HAND | _WAYS_OUT,
    Stage.SERVING: _BY_HAND | _WAYS_OUT,
    Stage.DRAINING: _BY_HAND | _WAYS_OUT,
    Stage.DRAINED: frozenset({Stage.SERVING, Stage.REGISTERING}) | _BY_HAND | _WAYS_OUT,
    Stage.SLEEPING: frozenset({Stage.SERVING, Stage.REGISTERING}) | _BY_HAND | _WAYS_OUT,
    Stage.STOPPING: frozenset({Stage.FAILED, Stage.ENDED}),
    Stage.FAILED: frozenset({Stage.ENDED}),
    Stage.ENDED: frozenset(),
}

_STAGE_OF: dict[WorkerState, Stage] = {
    WorkerState.STARTING: Stage.STARTING,
    WorkerState.LOADING: Stage.LOADING,
    WorkerState.DRAINING: Stage.DRAINING,
    WorkerState.DRAINED: Stage.DRAINED,
    WorkerState.STOPPING: Stage.STOPPING,
    WorkerState.FAILED: Stage.FAILED,
}
# The same states on the way out.
_WHILE_STOPPING: dict[WorkerState, str] = {
    WorkerState.DRAINED: "drained, the last answers are being read",
    WorkerState.STOPPING: "the engine is being stopped",
}
_MEANS: dict[ExitCode, str] = {
    ExitCode.PLANNED: "as planned",
    ExitCode.UNEXPECTED: "unexpected, the log says why",
    ExitCode.CONFIGURATION: "the configuration is refused",
    ExitCode.UNAVAILABLE: "a dependency is missing, or was lost",
    ExitCode.FORCED: "forced: asked twice, or the engine is dead",
}


class Life:
    """The state machine: hears events, knows the stage and its status line. Raises nothing, never waits."""

    def __init__(self) -> None:
        self.stage = Stage.STARTING
        self._hard_exit_s: float | None = None
        self._first_signal_s: float | None = None
        self._detail = ""
        self._serves = ""
        self._is_listed = False
        self._said: set[str] = set()

    @property
    def more_time(self) -> MoreTime:
        """Whether the manager's time-out is to be put off."""
        return ROWS[self.stage].more_time

    @property
    def exit_by_s(self) -> float | None:
        """When the process has ended in any case, monotonic; None before a signal, or without a budget."""
        if self._first_signal_s is None or self._hard_exit_s is None:
            return None
        return self._first_signal_s + self._hard_exit_s

    @property
    def status(self) -> str:
        """One line of plain text."""
        words = ROWS[self.stage].status
        if self._serves and self.stage in (Stage.LOADING, Stage.SERVING):
            words = f"{words} {self._serves}"
        return plain(": ".join(part for part in (words, self._detail) if part))

    def hear(self, event: LifeEvent) -> dict[str, str]:
        """What has to be said now: `STATUS` if it is new, `READY` or `STOPPING` the first time."""
        before = self.status
        self._take(event)
        news = {} if self.status == before else {"STATUS": self.status}
        says = ROWS[self.stage].says
        # Whoever is on the way out never was ready since: a late READY would be a lie.
        if says is not None and says not in self._said:
            self._said.add(says)
            news[says] = "1"
        return news

    def _take(self, event: LifeEvent) -> None:
        match event:
            case Preparing(what):
                self._tell(what, Stage.STARTING, Stage.LOADING)
            case Planned(model, engine, hard_exit_s):
                self._serves, self._hard_exit_s = f"{model} with {engine}", hard_exit_s
            case StateChanged(state):
                self._on_state(state)
            case Listed():
                self._on_listed()
            case DrainProgress() | WaitingForScrape():
                self._on_wait(event)
            case Resting(how, is_awake):
                self._on_rest(how, is_awake=is_awake)
            case StopAsked():
                self._on_stop_asked(event)
            case Failed(why):
                self._enter(Stage.FAILED)
                self._tell(why, Stage.FAILED)
            case Ended(code):
                self._on_ended(code)
            case _:
                assert_never(event)

    def _on_state(self, state: WorkerState) -> None:
        if self.stage is Stage.STOPPING and state in _WHILE_STOPPING:
            self._detail = _WHILE_STOPPING[state]
        elif state is WorkerState.SERVING:
            self._enter(Stage.SERVING if self._is_listed else Stage.REGISTERING)
        else:
            self._enter(_STAGE_OF[state])

    def _on_listed(self) -> None:
        self._is_listed = True
        # Who was drained by hand meanwhile is not in service, and soon not listed either.
        if self.stage is Stage.REGISTERING:
            self._enter(Stage.SERVING)

    def _on_wait(self, waits: DrainProgress | WaitingForScrape) -> None:
        left = f"for at most {waits.left_s:.0f} s more"
        if isinstance(waits, WaitingForScrape):
            self._tell(f"{_requests(waits.lost)} lost, until that is scraped, {left}", Stage.STOPPING)
        # The graph tells it once more when nobody is left, after it has said that it is drained.
        elif waits.remaining:
            self._tell(f"{_requests(waits.remaining)}, {left}", Stage.DRAINING)
            self._tell(f"draining {_requests(waits.remaining)}, {left}", Stage.STOPPING)

    def _on_rest(self, how: str, *, is_awake: bool) -> None:
        if is_awake and self.stage is Stage.SLEEPING:
            self._enter(Stage.DRAINED)
        elif not is_awake and self.stage in (Stage.DRAINED, Stage.SLEEPING):
            self._enter(Stage.SLEEPING)
            self._tell(how.replace("_", " "), Stage.SLEEPING)

    def _on_stop_asked(self, asked: StopAsked) -> None:
        if self._first_signal_s is None:
            self._first_signal_s = asked.first_s
        self._enter(Stage.STOPPING)
        twice = "asked twice, requests that are live are ended"
        once = "out of discovery, requests on their way are still served"
        self._tell(once if asked.count <= 1 else twice, Stage.STOPPING)

    def _on_ended(self, code: ExitCode | None) -> None:
        why = self._detail if self.stage is Stage.FAILED else ""
        means = "" if code is None else f" (code {code.value}, {_MEANS[code]})"
        self._enter(Stage.ENDED)
        # The code first: a long reason is cut.
        self._tell(f"failed{means}: {why}" if why else f"ended{means}", Stage.ENDED)

    def _enter(self, stage: Stage) -> None:
        if stage in NEXT[self.stage]:
            self.stage, self._detail = stage, ""

    def _tell(self, detail: str, *of: Stage) -> None:
        """Of a stage that is over it is no news any more."""
        if self.stage in of:
            self._detail = detail


def _requests(count: int) -> str:
    return "1 request" if count == 1 else f"{count} requests"


def plain(text: str) -> str:
    """One line that a manager can take: a control character in it would begin an assignment of its own."""
    line = "".join(char if char.isprintable() else " " for char in text)
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
