"""The figures of one request, computed once at its end and written down by every listener.

A request passes four hops. Each begins where the one before it ended, and the one in which the
request ended lasts until then: the durations of the hops add up to the duration of the request.

    arrived | intake | admitted | resolve | resolved | execute | first token | stream | ended
                                          resolved | waiting | submitted | prefill | first token
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct

from protocols.telemetry import Outcome
from service.telemetry.traceparent import TraceParent, parse_traceparent

if TYPE_CHECKING:
    from protocols.telemetry import RequestStory


class HopName(StrEnum):
    """The hops of a request, in their order."""

    INTAKE = "intake"
    RESOLVE = "resolve"
    EXECUTE = "execute"
    STREAM = "stream"


_HOPS = tuple(HopName)
# Served to the end: only then the time after the first token was spent on tokens and nothing else.
SERVED = frozenset({Outcome.COMPLETED, Outcome.STOPPED_BY_FRONTEND})


class Hop(Struct, frozen=True, gc=False):
    """One hop; monotonic seconds."""

    name: HopName
    start_s: float
    end_s: float

    @property
    def duration_s(self) -> float:
        """How long it took."""
        return self.end_s - self.start_s


class Figures(Struct, frozen=True, kw_only=True):
    """What follows from a `RequestStory`. Seconds; None where the request did not get that far.

    request_s: arrival to end. queue_s: arrival to submit. ttft_s: arrival to first token.
    cancelled_s: arrival to the wish to end it early.
    submitted_s: the story's, in order with the hops.
    itl_mean_s: mean time between two tokens of one choice; itl_p50_s: the median, of a long request that of
    the evenly spread gaps its story kept. Both only for requests that were served.
    """

    hops: tuple[Hop, ...]
    request_s: float
    submitted_s: float | None
    queue_s: float | None
    ttft_s: float | None
    cancelled_s: float | None
    itl_mean_s: float | None
    itl_p50_s: float | None
    trace: TraceParent | None


def figures_of(story: RequestStory) -> Figures:
    """Compute them. Times that run backwards (a driver with another clock) count as no time at all."""
    hops = _hops_of(story)
    arrived_s, ended_s = hops[0].start_s, hops[-1].end_s
    first_s = hops[3].start_s if len(hops) > 3 else None
    submitted_s = story.submitted_s
    if submitted_s is not None:
        waited = hops[min(2, len(hops) - 1)]
        submitted_s = min(max(submitted_s, waited.start_s), waited.end_s)
    return Figures(
        hops=hops,
        request_s=ended_s - arrived_s,
        submitted_s=submitted_s,
        queue_s=None if submitted_s is None else submitted_s - arrived_s,
        ttft_s=None if first_s is None else first_s - arrived_s,
        cancelled_s=_cancelled_s(story, arrived_s, ended_s),
        itl_mean_s=None if first_s is None else _itl_mean_s(story, ended_s - first_s),
        itl_p50_s=_itl_p50_s(story) if story.outcome in SERVED else None,
        trace=parse_traceparent(story.trace_headers),
    )


def _cancelled_s(story: RequestStory, arrived_s: float, ended_s: float) -> float | None:
    at_s = story.cancelled_s
    return None if at_s is None else min(max(at_s, arrived_s), ended_s) - arrived_s


def _hops_of(story: RequestStory) -> tuple[Hop, ...]:
    hops: list[Hop] = []
    start_s = story.arrived_s
    ended_s = max(story.ended_s, start_s)
    for name, mark_s in zip(
        _HOPS, (story.admitted_s, story.resolved_s, story.first_token_s, None), strict=True
    ):
        end_s = ended_s if mark_s is None else min(max(mark_s, start_s), ended_s)
        hops.append(Hop(name, start_s, end_s))
        if mark_s is None:
            break
        start_s = end_s
    return tuple(hops)


def _itl_mean_s(story: RequestStory, streamed_s: float) -> float | None:
    """Choices run side by side, so each of them makes its share of the gaps in the same time."""
    gaps = story.completion_tokens / story.n - 1
    return streamed_s / gaps if gaps > 0 and story.outcome in SERVED else None


def _itl_p50_s(story: RequestStory) -> float | None:
    gaps_s = sorted(story.pace.gaps_s[1:])
    return gaps_s[(len(gaps_s) - 1) // 2] if gaps_s else None
