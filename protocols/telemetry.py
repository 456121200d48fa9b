"""How the graph tells its story, without knowing who listens.

The graph calls these from its event loop, never per token. `NullTelemetry` is the listener of
tests and the price list: what the graph costs with it is the graph's own cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple, Protocol

from msgspec import Struct

from protocols.bounds import Bound
from protocols.errors import FailureCause
from protocols.rejections import RejectReason
from protocols.spec import Sampling
from protocols.steps import EngineStep, EngineTiming
from protocols.trace_link import TraceLink


class Outcome(StrEnum):
    """How a request ended. Every started request gets exactly one."""

    COMPLETED = "completed"
    STOPPED_BY_FRONTEND = "stopped_by_frontend"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    STALLED = "stalled"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    REFUSED = "refused"


class Phase(StrEnum):
    """Where a request is, or how far it came."""

    RESOLVING = "resolving"
    WAITING = "waiting"
    PREFILL = "prefill"
    DECODE = "decode"
    FINISHED = "finished"


class CancelReason(StrEnum):
    """Why a request is ended early."""

    CLIENT = "client"
    DEADLINE = "deadline"
    STALL = "stall"
    DRAIN = "drain"
    ENGINE_DEAD = "engine_dead"


class WorkerState(StrEnum):
    """Where the worker is in its life."""

    STARTING = "starting"
    LOADING = "loading"
    SERVING = "serving"
    DRAINING = "draining"
    DRAINED = "drained"
    STOPPING = "stopping"
    FAILED = "failed"


class AbortResult(StrEnum):
    """What became of an abort at the engine."""

    ASKED = "asked"
    CONFIRMED = "confirmed"
    TIMED_OUT = "timed_out"


class Pace(NamedTuple):
    """Evenly thinned marks of the steps that gave a request tokens, the first step's among them.

    at_s: when each ended, monotonic seconds. tokens: completion tokens so far, of all choices.
    gaps_s: since the step before it, for each token of one choice; 0 for the first step of all.
    """

    at_s: tuple[float, ...] = ()
    tokens: tuple[int, ...] = ()
    gaps_s: tuple[float, ...] = ()


class RequestStory(Struct, frozen=True, kw_only=True):
    """Everything about one request at its end. No content: counts, times, reasons.

    Times are monotonic seconds; None where the request did not get that far. A hop begins where
    the one before it ended: arrived, admitted, resolved, submitted, first_token, ended.
    error_text: of an engine's fault, which never has content in it; a caller's mistake quotes the caller.
    finish_reason: the one that went out. finish_reasons: by choice; a choice that was still open at
    the request's end has the request's, or None where that is an error.
    cancelled_s: when the reason for its early end came to be: the caller's leaving was heard, the deadline
    passed. The answer to it is the end.
    chunks: given to the reader, or lying ready for it, its last word's included. pace: when the tokens came.
    preemptions: how often a sequence of it lost its memory to another request and was computed again;
    preempted_s: when, of the first few.
    sampling, max_tokens: of the resolved request. predecessor: of a request that began on another worker.
    engine_timing: what the engine itself measured of it; None where it did not.
    is_moved: a drain interrupted it, and a frontend can continue it on another worker.
    failure_cause: of those whose outcome is failed. reject_reason: of those whose outcome is refused, and
    refused_field the part of the request that was wrong, if it was that.
    """

    engine_id: int
    context_id: str
    outcome: Outcome
    phase: Phase
    arrived_s: float
    admitted_s: float | None
    resolved_s: float | None
    submitted_s: float | None
    first_token_s: float | None
    ended_s: float
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    n: int
    finish_reason: str | None
    finish_reasons: tuple[str | None, ...]
    cancel_reason: CancelReason | None
    error_kind: str | None
    error_text: str | None = None
    is_probe: bool
    trace_headers: Mapping[str, str] | None
    execute_context: object = None
    cancelled_s: float | None = None
    chunks: int = 0
    pace: Pace = Pace()
    preemptions: int = 0
    preempted_s: tuple[float, ...] = ()
    sampling: Sampling | None = None
    max_tokens: int | None = None
    predecessor: TraceLink | None = None
    engine_timing: EngineTiming | None = None
    is_moved: bool = False
    failure_cause: FailureCause | None = None
    reject_reason: RejectReason | None = None
    refused_field: str | None = None


class AbortStory(Struct, frozen=True, kw_only=True):
    """How far an abort at the engine is. asked_s, at_s: when the engine was told, and now; monotonic."""

    engine_id: int
    context_id: str
    result: AbortResult
    asked_s: float
    at_s: float
    trace_headers: Mapping[str, str] | None


class DrainReport(Struct, frozen=True, kw_only=True):
    """What became of the requests that were live when the door closed.

    completed: got all they asked for, by the engine's word or the frontend's. interrupted: ended by the
    shutdown. moved: those of them that a frontend can continue on another worker. ended_otherwise: the
    client left, a deadline, a stall, a failure, a refusal; they have an outcome of their own each.
    seconds: from the moment the stop was asked for to the end of the last request.
    """

    live_at_start: int
    completed: int
    ended_otherwise: int
    moved: int
    interrupted: int
    seconds: float


class Telemetry(Protocol):
    """Listener of the graph."""

    def request_submitted(
        self, trace_headers: Mapping[str, str] | None
    ) -> tuple[tuple[tuple[str, str], ...], object]:
        """A request goes to the engine: headers to hand on, and what `RequestStory` carries back."""
        ...

    def request_ended(self, story: RequestStory) -> None:
        """A request got its outcome; called before its last chunk is given out."""
        ...

    def request_named_unknown(self, key: str) -> None:
        """A request carried a top-level key without a meaning here."""
        ...

    def request_cancelled(self, reason: CancelReason, phase: Phase) -> None:
        """A request is being ended early."""
        ...

    def abort_told(self, abort: AbortStory) -> None:
        """An abort was asked for, confirmed, or not confirmed in time."""
        ...

    def step_done(self, step: EngineStep, tokens: int) -> None:
        """The engine made a step; ``tokens`` were delivered, those of health probes not counted."""
        ...

    def state_changed(self, state: WorkerState) -> None:
        """The worker moved on in its life."""
        ...

    def drain_progress(self, remaining: int, left_s: float) -> None:
        """While draining: so many requests are left, and so many seconds until the last rung."""
        ...

    def drain_ended(self, report: DrainReport) -> None:
        """A drain is over."""
        ...

    def bound_reached(self, bound: Bound, count: int = 1, /) -> None:
        """A bound was reached that nothing else here tells of."""
        ...


class NullTelemetry:
    """Listens to nothing."""

    def request_submitted(
        self, trace_headers: Mapping[str, str] | None
    ) -> tuple[tuple[tuple[str, str], ...], object]:
        return (tuple(trace_headers.items()) if trace_headers else ()), None

    def request_ended(self, story: RequestStory) -> None: ...

    def request_named_unknown(self, key: str) -> None: ...

    def request_cancelled(self, reason: CancelReason, phase: Phase) -> None: ...

    def abort_told(self, abort: AbortStory) -> None: ...

    def step_done(self, step: EngineStep, tokens: int) -> None: ...

    def state_changed(self, state: WorkerState) -> None: ...

    def drain_progress(self, remaining: int, left_s: float) -> None: ...

    def drain_ended(self, report: DrainReport) -> None: ...

    def bound_reached(self, bound: Bound, count: int = 1, /) -> None: ...
