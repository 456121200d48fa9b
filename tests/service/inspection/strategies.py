"""Anything that a worker can say, in bounds or at them, well meant or not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from protocols.telemetry import Outcome
from service.inspection.journeys import Life
from service.inspection.story import Hop, Mark, Predecessor, Story, Worker

_EPOCH = datetime(2026, 11, 30, tzinfo=UTC)
# Equal ones, none at all, and a human's whole life.
_times = st.one_of(st.sampled_from([0.0, 0.001, 1.0, 62.5, 1e12]), st.floats(0, 1e6), st.floats(0, 1e12))
_counts = st.one_of(st.integers(0, 3), st.integers(0, 10**15))
_words = st.one_of(st.sampled_from(["client", "stop", "engine"]), st.text(max_size=40))
_traces = st.sampled_from(["a" * 32, "b" * 32])
_arrivals = st.one_of(
    st.integers(0, 5).map(lambda seconds: _EPOCH + timedelta(seconds=seconds)),
    st.datetimes(datetime(1971, 1, 1), datetime(8999, 1, 1), timezones=st.just(UTC)),
)
_hops = st.builds(
    Hop,
    name=st.one_of(
        st.sampled_from(["actor.intake", "actor.resolve", "actor.execute", "actor.stream"]), _words
    ),
    start_ms=_times,
    duration_ms=_times,
    waiting_ms=st.none() | _times,
    prefill_ms=st.none() | _times,
)


def stories(contexts: st.SearchStrategy[str] = _words) -> st.SearchStrategy[Story]:
    """Of any outcome, also of one that is not invented yet."""
    return st.builds(
        Story,
        engine_id=_counts,
        context_id=contexts,
        trace_id=st.none() | _traces,
        arrived_at=_arrivals,
        outcome=st.one_of(st.sampled_from([outcome.value for outcome in Outcome]), _words),
        phase=_words,
        finish_reason=st.none() | _words,
        finish_reasons=st.lists(st.none() | _words, max_size=3),
        cancel_reason=st.none() | _words,
        error_kind=st.none() | st.sampled_from(["EngineShutdown", "GenerationFailed"]) | _words,
        error=st.none() | st.text(max_size=400),
        failure_cause=st.none() | _words,
        reject_reason=st.none() | _words,
        refused_field=st.none() | _words,
        max_tokens=st.none() | _counts,
        x_request_id=st.none() | _words,
        span_id=st.none() | _words,
        n=_counts,
        prompt_tokens=_counts,
        cached_tokens=_counts,
        completion_tokens=_counts,
        chunks=_counts,
        duration_ms=_times,
        queue_ms=st.none() | _times,
        ttft_ms=st.none() | _times,
        itl_mean_ms=st.none() | _times,
        itl_p50_ms=st.none() | _times,
        cancelled_ms=st.none() | _times,
        preemptions=_counts,
        preempted_ms=st.lists(_times, max_size=8),
        marks=st.lists(st.builds(Mark, _times, _counts), max_size=8),
        is_sampled=st.booleans(),
        is_moved=st.booleans(),
        predecessor=st.none() | st.builds(Predecessor, _traces, st.just("1" * 16)),
        hops=st.lists(_hops, max_size=5),
    )


def lives(contexts: st.SearchStrategy[str] = _words) -> st.SearchStrategy[Life]:
    """On one of a few workers, of which one has two addresses and one says nothing of itself."""
    workers = [
        Worker("http://a"),
        Worker("http://b", "one"),
        Worker("http://c", "one"),
        Worker("http://d", "two"),
    ]
    return st.builds(Life, worker=st.sampled_from(workers), story=stories(contexts))
