"""Promises about the times that TensorRT-LLM measured of a request."""

from __future__ import annotations

from datetime import timedelta
from enum import Enum
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.engines.trtllm.answers.timing import timing_of
from protocols.steps import EngineTiming


class MetricNames(Enum):
    """Some of the library's; the values of most are not known."""

    REQUEST_QUEUE_TIME = "request_queue_time"
    PREFILL_TIME = "?1"
    DECODE_TIME = "?2"
    TTFT = "ttft"


def measured(**seconds: Any) -> Any:
    """A ``CompletionOutput``. Moments that did not come are 0."""
    names = ("arrival", "first_scheduled", "first_token", "last_token")
    moments = {f"{name}_time": timedelta(0) for name in names}
    moments |= {"kv_cache_transfer_start": timedelta(0), "kv_cache_transfer_end": timedelta(0)}
    told = {
        name: timedelta(seconds=value) if isinstance(value, int | float) else value
        for name, value in seconds.items()
    }
    return SimpleNamespace(
        request_perf_metrics=SimpleNamespace(timing_metrics=SimpleNamespace(**moments | told))
    )


def test_the_spans_between_the_moments_are_told() -> None:
    """The moments themselves are of a clock that nobody else has."""
    output = measured(
        arrival_time=100.0,
        first_scheduled_time=100.5,
        first_token_time=102.5,
        last_token_time=110.5,
        kv_cache_transfer_start=100.5,
        kv_cache_transfer_end=100.75,
    )
    assert timing_of(output) == EngineTiming(queued_s=0.5, prefill_s=2.0, decode_s=8.0, transfer_s=0.25)


def test_a_moment_that_did_not_come_ends_no_span() -> None:
    """One that was scheduled at once waited 0 s, which is known."""
    assert timing_of(measured(arrival_time=100.0, first_scheduled_time=100.0)) == EngineTiming(queued_s=0.0)
    backwards = measured(arrival_time=100.0, first_scheduled_time=99.0, first_token_time=101.0)
    assert timing_of(backwards) == EngineTiming(prefill_s=2.0)


def test_without_moments_the_metrics_are_read() -> None:
    """By the names of their keys."""
    metrics = {
        "finished_reason": "stop",
        MetricNames.REQUEST_QUEUE_TIME: 0.25,
        MetricNames.PREFILL_TIME: 1.5,
        MetricNames.DECODE_TIME: -1.0,
        MetricNames.TTFT: 1.75,
    }
    assert timing_of(SimpleNamespace(metrics_dict=metrics)) == EngineTiming(queued_s=0.25, prefill_s=1.5)


@pytest.mark.parametrize(
    "output",
    [
        None,
        object(),
        SimpleNamespace(request_perf_metrics=None, metrics_dict=None),
        SimpleNamespace(request_perf_metrics=None, metrics_dict={}),
        SimpleNamespace(metrics_dict=[1]),
        measured(),
        SimpleNamespace(request_perf_metrics=SimpleNamespace(timing_metrics=object())),
    ],
)
def test_an_engine_that_did_not_measure_says_nothing(output: object) -> None:
    """Nothing is made up."""
    assert timing_of(output) is None


Odd: st.SearchStrategy[Any] = st.one_of(st.floats(), st.none(), st.text(max_size=2), st.booleans())


@given(
    moments=st.dictionaries(
        st.sampled_from(["arrival_time", "first_scheduled_time", "first_token_time", "last_token_time"]),
        st.one_of(st.timedeltas(), Odd),
    )
)
def test_whatever_an_engine_says_no_span_is_negative(moments: dict[str, Any]) -> None:
    """Nor is anything raised."""
    perf = SimpleNamespace(timing_metrics=SimpleNamespace(**moments))
    timing = timing_of(SimpleNamespace(request_perf_metrics=perf))
    if timing is not None:
        spans = (timing.queued_s, timing.prefill_s, timing.decode_s)
        assert all(span is None or span >= 0 for span in spans)
