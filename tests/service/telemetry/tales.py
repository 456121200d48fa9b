"""Stories of requests, one for every way in which a request can end."""

from __future__ import annotations

import itertools
from typing import Any

from protocols.rejections import RejectReason
from protocols.telemetry import (
    AbortResult,
    AbortStory,
    CancelReason,
    DrainReport,
    Outcome,
    Pace,
    Phase,
    RequestStory,
)

TRACE_ID = "0123456789abcdef0123456789abcdef"
PARENT_ID = "1122334455667788"
SAMPLED = {"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-01"}
UNSAMPLED = {"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-00"}

# Binary fractions, so that sums and differences are exact: 62.5 ms in intake, 62.5 in resolve, 125 waiting,
# 250 in prefill, 2 s of stream.
_TIMES = {
    "arrived_s": 100.0,
    "admitted_s": 100.0625,
    "resolved_s": 100.125,
    "submitted_s": 100.25,
    "first_token_s": 100.5,
    "ended_s": 102.5,
}
_NOT_REACHED: dict[Phase, tuple[str, ...]] = {
    Phase.RESOLVING: ("resolved_s", "submitted_s", "first_token_s"),
    Phase.WAITING: ("submitted_s", "first_token_s"),
    Phase.PREFILL: ("first_token_s",),
    Phase.DECODE: (),
}


def tale(outcome: Outcome = Outcome.COMPLETED, phase: Phase = Phase.DECODE, **changes: Any) -> RequestStory:
    """A request that ended in this phase with this outcome; everything else can be changed by name."""
    fields: dict[str, Any] = {
        "engine_id": 7,
        "context_id": "ctx-7",
        "outcome": outcome,
        "phase": phase,
        **_TIMES,
        **dict.fromkeys(_NOT_REACHED[phase]),
        "prompt_tokens": 12,
        "completion_tokens": 9 if phase is Phase.DECODE else 0,
        "cached_tokens": 4,
        "n": 1,
        "finish_reason": None,
        "cancel_reason": None,
        "error_kind": None,
        "is_probe": False,
        "trace_headers": None,
        **changes,
    }
    fields.setdefault("finish_reasons", (fields["finish_reason"],) * fields["n"])
    return RequestStory(**fields)


def tale_of_refusal(reason: RejectReason, **changes: Any) -> RequestStory:
    """A request that ended at the door."""
    return tale(Outcome.REFUSED, Phase.RESOLVING, admitted_s=None, reject_reason=reason, **changes)


def tale_of_abort(result: AbortResult, **changes: Any) -> AbortStory:
    """Request 7's, three quarters of a second after the engine was told."""
    fields: dict[str, Any] = {
        "engine_id": 7,
        "context_id": "ctx-7",
        "asked_s": 102.5,
        "at_s": 103.25,
        "trace_headers": None,
    }
    return AbortStory(result=result, **{**fields, **changes})


def pace_of(*marks: tuple[float, int]) -> Pace:
    """Of one choice that got all its tokens in these steps: when each ended, and the tokens so far."""
    gaps_s = [
        (at_s - before_s) / (tokens - fewer)
        for (before_s, fewer), (at_s, tokens) in itertools.pairwise(marks)
    ]
    return Pace(tuple(at_s for at_s, _ in marks), tuple(tokens for _, tokens in marks), (0.0, *gaps_s))


def report_of_drain(**changes: Any) -> DrainReport:
    """Six were live: three completed, one client left, one goes on elsewhere, one was lost."""
    fields: dict[str, Any] = {
        "live_at_start": 6,
        "completed": 3,
        "ended_otherwise": 1,
        "moved": 1,
        "interrupted": 2,
        "seconds": 1.25,
    }
    return DrainReport(**{**fields, **changes})


def outcome_of(story: RequestStory) -> str:
    """For the names of tests."""
    return story.outcome.value


def tale_of_each() -> list[RequestStory]:
    """One story per outcome, with the phase, reasons and error it has in real life."""
    return [
        tale(Outcome.COMPLETED, engine_id=1, finish_reason="length"),
        tale(
            Outcome.STOPPED_BY_FRONTEND,
            engine_id=2,
            finish_reason="cancelled",
            cancel_reason=CancelReason.CLIENT,
        ),
        tale(
            Outcome.CANCELLED,
            Phase.PREFILL,
            engine_id=3,
            finish_reason="cancelled",
            cancel_reason=CancelReason.CLIENT,
        ),
        tale(
            Outcome.DEADLINE,
            Phase.WAITING,
            engine_id=4,
            cancel_reason=CancelReason.DEADLINE,
            error_kind="DeadlineExceeded",
        ),
        tale(Outcome.STALLED, engine_id=5, cancel_reason=CancelReason.STALL, error_kind="ReaderStalled"),
        tale(Outcome.FAILED, Phase.PREFILL, engine_id=6, error_kind="GenerationFailed"),
        tale(
            Outcome.INTERRUPTED,
            engine_id=7,
            cancel_reason=CancelReason.DRAIN,
            error_kind="EngineShutdown",
            n=2,
        ),
        tale(
            Outcome.REFUSED,
            Phase.RESOLVING,
            engine_id=8,
            admitted_s=None,
            error_kind="InvalidRequest",
            reject_reason=RejectReason.INVALID_REQUEST,
            refused_field="sampling_options.top_p",
        ),
    ]
