"""The last finished requests, for whoever asks what happened: the trace route and the demo.

What failed, what was slow and what a tracing back-end shows is what people ask about, so none of it
is pushed out by the many requests that went well. (Where all are sampled, that keeps none of them longer.)
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from datetime import UTC, datetime
from enum import StrEnum
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, assert_never

from msgspec import structs

from protocols.bounds import Bound, ignore_bound
from protocols.telemetry import Outcome
from service.telemetry.figures import HopName, figures_of
from service.telemetry.identifiers import callers_id, shown_id
from service.telemetry.traceparent import parse_traceparent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from protocols.bounds import OnBound
    from protocols.telemetry import RequestStory
    from service.telemetry.figures import Figures, Hop

# Together 352 stories. The marks of their tokens are most of it: at most 2.5 MB.
LAST, FAILED, TRACED, REFUSED, SLOW = 128, 64, 64, 32, 32
# Of an id or a header that a caller chose: longer ones are kept as the digest that is shown of them.
LONGEST_TEXT = 256
# In one answer: more would keep the event loop for longer than a few milliseconds.
MOST_TOLD = 64
# The slowest of this window and of the one before it are kept: the cold start does not stay on top for ever.
WINDOW_S = 600.0

# What a frontend puts before the context's id, in the id of the answer that its client gets.
_ANSWERS_OF = ("chatcmpl-", "cmpl-")

_FAILURES = frozenset({Outcome.DEADLINE, Outcome.STALLED, Outcome.FAILED, Outcome.INTERRUPTED})


class Kept(StrEnum):
    """What can be asked for without an id."""

    LAST = "last"
    SLOWEST = "slowest"
    FAILED = "failed"


class Stories:
    """Bounded, in the order of endings. Belongs to the event loop.

    on_bound: told when a story makes room for another one, or is left out of an answer.
    """

    def __init__(self, on_bound: OnBound = ignore_bound) -> None:
        self._on_bound = on_bound
        self._last: deque[RequestStory] = deque(maxlen=LAST)
        self._failed: deque[RequestStory] = deque(maxlen=FAILED)
        self._traced: deque[RequestStory] = deque(maxlen=TRACED)
        # On their own: whoever is refused asks again, and again.
        self._refused: deque[RequestStory] = deque(maxlen=REFUSED)
        # Heaps of (duration, engine id, story): the id is unique, so stories are never compared.
        self._slow: list[tuple[float, int, RequestStory]] = []
        self._slow_before: list[tuple[float, int, RequestStory]] = []
        self._window_ends_s = 0.0

    def request_ended(self, story: RequestStory, figures: Figures) -> None:
        """Keep it, at the cost of an older one."""
        story = _without_long_texts(story)
        place = self._refused if story.outcome is Outcome.REFUSED else self._last
        if len(place) == place.maxlen:
            self._on_bound(Bound.STORIES)
        place.append(story)
        if place is self._refused:
            return
        if story.outcome in _FAILURES:
            self._failed.append(story)
        if figures.trace is not None and figures.trace.is_sampled:
            self._traced.append(story)
        if story.ended_s >= self._window_ends_s:
            is_next = story.ended_s < self._window_ends_s + WINDOW_S
            self._slow_before = self._slow if is_next else []
            self._slow = []
            self._window_ends_s = story.ended_s + WINDOW_S
        entry = (figures.request_s, story.engine_id, story)
        if len(self._slow) < SLOW:
            heapq.heappush(self._slow, entry)
        elif entry > self._slow[0]:
            heapq.heapreplace(self._slow, entry)

    def select(self, which: Kept, limit: int = MOST_TOLD) -> list[RequestStory]:
        """At most ``limit`` stories; last and failed: newest first, slowest: slowest first."""
        match which:
            case Kept.LAST:
                return self._told(iter(_newest_first(self._last, self._refused)), limit)
            case Kept.FAILED:
                return self._told(reversed(self._failed), limit)
            case Kept.SLOWEST:
                slow = sorted(self._slow + self._slow_before, reverse=True)
                return self._told((story for _, _, story in slow), limit)
            case _:
                assert_never(which)

    def find(self, wanted: str, limit: int = MOST_TOLD) -> list[RequestStory]:
        """At most ``limit`` stories with this id, newest first.

        The engine's, the context's, the trace's, that of the answer, or the caller's own (``x-request-id``);
        what a caller chose also in the form in which it is shown. Several requests may have had it.
        """
        names = {wanted, *(wanted.removeprefix(prefix) for prefix in _ANSWERS_OF)}
        found = (story for story in self._all() if not names.isdisjoint(_ids_of(story)))
        return self._told(found, limit)

    def _told(self, found: Iterator[RequestStory], limit: int) -> list[RequestStory]:
        """A limit below the bound is what somebody wished: nothing was kept from him."""
        told = list(islice(found, limit))
        if limit >= MOST_TOLD and next(found, None) is not None:
            self._on_bound(Bound.TRACE_ANSWER)
        return told

    def _all(self) -> list[RequestStory]:
        """Every story once, newest first."""
        slow = (story for _, _, story in self._slow + self._slow_before)
        places = (self._last, self._failed, self._traced, self._refused, slow)
        by_id = {story.engine_id: story for stories in places for story in stories}
        return _newest_first(by_id.values())

    def as_dicts(self, stories: Iterable[RequestStory]) -> list[dict[str, Any]]:
        """See `story_as_dict`. All by one look at the clocks, so that who came first stays first."""
        clock_began_s = time.time() - time.monotonic()
        return [story_as_dict(story, clock_began_s) for story in stories]


def _newest_first(*places: Iterable[RequestStory]) -> list[RequestStory]:
    return sorted(chain(*places), key=lambda story: (story.ended_s, story.engine_id), reverse=True)


def _without_long_texts(story: RequestStory) -> RequestStory:
    """The same, unless its caller chose a kilobyte for an id or a header."""
    headers = story.trace_headers or {}
    if all(len(text) <= LONGEST_TEXT for text in (story.context_id, *headers.values())):
        return story
    return structs.replace(
        story,
        context_id=_short(story.context_id),
        trace_headers={name: _short(text) for name, text in headers.items()},
    )


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else shown_id(text)


def _ids_of(story: RequestStory) -> Iterator[str]:
    yield str(story.engine_id)
    for chosen in (story.context_id, callers_id(story.trace_headers)):
        if chosen is not None:
            yield from (chosen, shown_id(chosen))
    if (trace := parse_traceparent(story.trace_headers)) is not None:
        yield trace.trace_id


def story_as_dict(story: RequestStory, clock_began_s: float = 0.0) -> dict[str, Any]:
    """One story as JSON takes it. Times in milliseconds, to the microsecond; no content.

    clock_began_s: the wall time when the monotonic clock was 0.

    A hop's ``start_ms`` counts from the arrival. The hop "actor.execute" says how long of it was spent in
    the waiting room and how long in the engine's prefill.
    """
    figures = figures_of(story)
    arrived = datetime.fromtimestamp(clock_began_s + story.arrived_s, UTC)
    return {
        **_names_in(story, figures),
        "arrived_at": arrived.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        **_end_in(story),
        **_sizes_in(story),
        **_times_in(story, figures),
        "hops": [_hop_as_dict(hop, figures) for hop in figures.hops],
    }


def _names_in(story: RequestStory, figures: Figures) -> dict[str, Any]:
    callers, trace = callers_id(story.trace_headers), figures.trace
    return {
        "engine_id": story.engine_id,
        "context_id": shown_id(story.context_id),
        "x_request_id": None if callers is None else shown_id(callers),
        "trace_id": None if trace is None else trace.trace_id,
        "span_id": None if trace is None else trace.span_id,
        "is_sampled": trace is not None and trace.is_sampled,
        "predecessor": None if story.predecessor is None else story.predecessor._asdict(),
    }


def _end_in(story: RequestStory) -> dict[str, Any]:
    return {
        "outcome": story.outcome.value,
        "phase": story.phase.value,
        "finish_reason": story.finish_reason,
        "finish_reasons": list(story.finish_reasons),
        "cancel_reason": None if story.cancel_reason is None else story.cancel_reason.value,
        "error_kind": story.error_kind,
        "error": story.error_text,
        "failure_cause": story.failure_cause,
        "reject_reason": story.reject_reason,
        "refused_field": story.refused_field,
        "is_moved": story.is_moved,
    }


def _sizes_in(story: RequestStory) -> dict[str, Any]:
    return {
        "n": story.n,
        "max_tokens": story.max_tokens,
        "prompt_tokens": story.prompt_tokens,
        "cached_tokens": story.cached_tokens,
        "completion_tokens": story.completion_tokens,
        "chunks": story.chunks,
        "preemptions": story.preemptions,
    }


def _times_in(story: RequestStory, figures: Figures) -> dict[str, Any]:
    marks = zip(story.pace.at_s, story.pace.tokens, strict=True)
    return {
        "duration_ms": _ms(figures.request_s),
        "queue_ms": _ms(figures.queue_s),
        "ttft_ms": _ms(figures.ttft_s),
        "itl_mean_ms": _ms(figures.itl_mean_s),
        "itl_p50_ms": _ms(figures.itl_p50_s),
        "cancelled_ms": _ms(figures.cancelled_s),
        "engine": _engine_in(story),
        "preempted_ms": [_since(at_s, figures) for at_s in story.preempted_s],
        "marks": [[_since(at_s, figures), tokens] for at_s, tokens in marks],
    }


def _engine_in(story: RequestStory) -> dict[str, float | None] | None:
    """What the engine measured itself."""
    timing = story.engine_timing
    if timing is None:
        return None
    return {
        "queued_ms": _ms(timing.queued_s),
        "prefill_ms": _ms(timing.prefill_s),
        "decode_ms": _ms(timing.decode_s),
        "transfer_ms": _ms(timing.transfer_s),
    }


def _hop_as_dict(hop: Hop, figures: Figures) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": f"actor.{hop.name.value}",
        "start_ms": _ms(hop.start_s - figures.hops[0].start_s),
        "duration_ms": _ms(hop.duration_s),
    }
    if hop.name is HopName.EXECUTE:
        submitted_s = figures.submitted_s
        entry["waiting_ms"] = _ms((hop.end_s if submitted_s is None else submitted_s) - hop.start_s)
        entry["prefill_ms"] = None if submitted_s is None else _ms(hop.end_s - submitted_s)
    return entry


def _since(at_s: float, figures: Figures) -> float:
    """Milliseconds from the arrival, within the request."""
    last_s = figures.hops[-1].end_s
    return round((min(max(at_s, figures.hops[0].start_s), last_s) - figures.hops[0].start_s) * 1000, 3)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)
