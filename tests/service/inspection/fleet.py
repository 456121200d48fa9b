"""What workers tell: stories of every outcome, one request with several lives, and ids that mean harm."""

from __future__ import annotations

from typing import Any

from msgspec import convert

from protocols.errors import FailureCause
from protocols.telemetry import CancelReason, Outcome, Pace, Phase, RequestStory
from protocols.trace_link import TraceLink
from service.inspection.asking import Asked, Heard, Question
from service.inspection.journeys import Life, journeys_of
from service.inspection.story import Story, Worker
from service.telemetry.stories import Kept, story_as_dict
from tests.service.telemetry.tales import PARENT_ID, SAMPLED, TRACE_ID, tale

# When the fleet's first request arrived; wall time.
EPOCH_S = 1_796_060_000.0
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[2J\u202eGNP"


def _pace(steps: int, gap_s: float) -> Pace:
    """A token a step, from the first one of a tale on."""
    return Pace(
        tuple(100.5 + gap_s * step for step in range(steps)),
        tuple(range(1, steps + 1)),
        (0.0, *[gap_s] * (steps - 1)),
    )


def worker_named(name: str) -> Worker:
    return Worker(f"http://{name}:9090", name, "0.1.0", "torch", "smollm2-135m")


def life(story: RequestStory, worker: str = "one", at_s: float = 0.0, **changes: Any) -> Life:
    """It arrived so many seconds after the epoch, by the clock of its worker.

    changes: keys of the answer that the worker would have written otherwise.
    """
    told = story_as_dict(story, EPOCH_S + at_s - story.arrived_s)
    return Life(worker_named(worker), convert({**told, **changes}, Story))


def moved(**changes: Any) -> RequestStory:
    """The first life of a request that a drain interrupted."""
    fields: dict[str, Any] = {
        "engine_id": 40,
        "context_id": "moved",
        "cancel_reason": CancelReason.DRAIN,
        "error_kind": "EngineShutdown",
        "cancelled_s": 102.5,
        "is_moved": True,
        "trace_headers": SAMPLED,
        "pace": _pace(9, 0.25),
        **changes,
    }
    return tale(Outcome.INTERRUPTED, **fields)


def continued(**changes: Any) -> RequestStory:
    """The life after it, on another worker."""
    fields: dict[str, Any] = {
        "engine_id": 3,
        "context_id": "moved",
        "finish_reason": "length",
        "trace_headers": SAMPLED,
        "predecessor": TraceLink(TRACE_ID, PARENT_ID),
        "pace": _pace(11, 0.2),
        **changes,
    }
    return tale(**fields)


def tales_of_each() -> list[RequestStory]:
    """One for every outcome, with moments, marks and causes, of different durations."""
    pace = _pace(9, 0.25)
    return [
        tale(
            engine_id=1,
            context_id="well",
            finish_reason="length",
            pace=pace,
            chunks=9,
            max_tokens=16,
            trace_headers={**SAMPLED, "x-request-id": "gateway-1"},
        ),
        tale(
            Outcome.STOPPED_BY_FRONTEND,
            engine_id=2,
            context_id="enough",
            ended_s=101.5,
            finish_reason="cancelled",
            cancel_reason=CancelReason.CLIENT,
            cancelled_s=101.5,
            pace=_pace(5, 0.25),
            chunks=3,
        ),
        tale(
            Outcome.CANCELLED,
            Phase.PREFILL,
            engine_id=3,
            context_id="left",
            ended_s=100.75,
            finish_reason="cancelled",
            cancel_reason=CancelReason.CLIENT,
            cancelled_s=100.5,
        ),
        tale(
            Outcome.DEADLINE,
            Phase.WAITING,
            engine_id=4,
            context_id="late",
            ended_s=110.0,
            cancel_reason=CancelReason.DEADLINE,
            cancelled_s=109.9375,
            error_kind="DeadlineExceeded",
        ),
        tale(
            Outcome.STALLED,
            engine_id=5,
            context_id="asleep",
            ended_s=130.5,
            cancel_reason=CancelReason.STALL,
            cancelled_s=130.5,
            error_kind="ReaderStalled",
            pace=pace,
            preemptions=11,
            preempted_s=tuple(101.0 + step for step in range(8)),
        ),
        tale(
            Outcome.FAILED,
            engine_id=6,
            context_id="broken",
            error_kind="GenerationFailed",
            error_text=f"a logits processor raised: {HOSTILE}",
            failure_cause=FailureCause.ENGINE,
            pace=pace,
        ),
        tale(
            Outcome.INTERRUPTED,
            engine_id=7,
            context_id="cut",
            ended_s=140.5,
            cancel_reason=CancelReason.DRAIN,
            cancelled_s=140.25,
            error_kind="EngineShutdown",
            n=2,
            pace=pace,
        ),
        tale(
            Outcome.REFUSED,
            Phase.RESOLVING,
            engine_id=8,
            context_id="wrong",
            ended_s=100.03125,
            admitted_s=None,
            error_kind="InvalidRequest",
        ),
    ]


def fleet() -> Heard:
    """Two workers and one that does not answer; a request of every outcome, a moved one, hostile ids."""
    lives = [life(story, "one", 10.0 * place) for place, story in enumerate(tales_of_each())]
    lives += [life(moved(), "one", 100.0), life(continued(), "two", 102.75)]
    hostile = tale(engine_id=9, finish_reason=HOSTILE)
    lives.append(life(hostile, "two", 120.0, context_id=HOSTILE, outcome=HOSTILE))
    silent = Asked(Worker("http://three:9090"), f"no worker answers at http://three:9090: {HOSTILE}")
    return Heard(
        Question(None, Kept.LAST, 64),
        (Asked(worker_named("one")), Asked(worker_named("two")), silent),
        tuple(reversed(journeys_of(lives))),
    )
