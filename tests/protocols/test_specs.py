"""Promises of the plain data that crosses borders: usage, specs, and a listener that listens to nothing."""

from __future__ import annotations

import inspect

import pytest

from protocols.chunks import usage_of
from protocols.spec import GenerationSpec, Sampling, StopRules
from protocols.steps import EngineStep, FinishReason
from protocols.telemetry import NullTelemetry, Telemetry


def test_usage_counts_the_prompt_once() -> None:
    """The output is the sum over all choices; the total adds up."""
    assert usage_of(4, 9, 3) == {
        "prompt_tokens": 4,
        "completion_tokens": 9,
        "total_tokens": 13,
        "prompt_tokens_details": {"cached_tokens": 3},
    }


@pytest.mark.parametrize(
    ("sampling", "is_greedy"),
    [
        (Sampling(), True),
        (Sampling(temperature=-0.0), True),
        (Sampling(temperature=0.7), False),
        (Sampling(temperature=0.7, top_k=1), True),
        (Sampling(temperature=0.7, top_k=2), False),
    ],
)
def test_greedy_is_temperature_zero_or_one_candidate(sampling: Sampling, is_greedy: bool) -> None:
    """No noise is drawn then."""
    assert sampling.is_greedy is is_greedy


def test_several_choices_cannot_be_moved() -> None:
    """Measured with the framework: only requests of one choice can."""
    stop = StopRules(max_tokens=1)
    assert GenerationSpec(prompt=(1,), stop=stop).is_movable
    assert not GenerationSpec(prompt=(1,), stop=stop, n=2).is_movable


def test_finish_reasons_are_the_ones_the_adapter_accepts() -> None:
    """Any other word ends a stream as an invalid chunk."""
    assert {reason.value for reason in FinishReason} <= {
        "stop",
        "eos",
        "length",
        "cancelled",
        "content_filter",
    }


def test_the_null_listener_hears_everything() -> None:
    """Every method of the protocol, with the same parameters; trace headers are handed on as they came."""
    null = NullTelemetry()
    for name, method in inspect.getmembers(Telemetry, inspect.isfunction):
        if not name.startswith("_"):
            assert inspect.signature(getattr(NullTelemetry, name)) == inspect.signature(method)
    assert null.request_submitted({"traceparent": "00-1"}) == ((("traceparent", "00-1"),), None)
    assert null.request_submitted(None) == ((), None)
    null.step_done(EngineStep([], 0.0, 0.0), 0)
