"""Why a request was refused, in words that are all ours."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.errors import DeadlineExceeded, EngineShutdown, InvalidRequest, Overloaded
from protocols.rejections import RejectReason, refused_field_of, reject_reason_of


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Overloaded("max_live", "x"), "max_live"),
        (Overloaded("outbox_tokens", "x"), "outbox_tokens"),
        (Overloaded("a bound nobody counts", "x"), "other"),
        (InvalidRequest("a", 1, "b"), "invalid_request"),
        (EngineShutdown("x"), "draining"),
        (DeadlineExceeded(1.0), "other"),
    ],
)
def test_every_refusal_has_one_of_the_words(error: Any, reason: str) -> None:
    """Labels are bounded: the metrics are made from the same list."""
    assert reject_reason_of(error) is RejectReason(reason)


@pytest.mark.parametrize(
    ("field", "told"),
    [
        ("token_ids", "token_ids"),
        ("token_ids[3]", "token_ids"),
        ("sampling_options.top_p", "sampling_options.top_p"),
        ("sampling_options.guided_decoding.json.my secret", "sampling_options.guided_decoding"),
        ("sampling_options.my secret", "sampling_options"),
        ("routing.cache_salt", "routing.cache_salt"),
        ("x-dynamo-meta-deadline-ms", "x-dynamo-meta-deadline-ms"),
        ("annotations", "annotations"),
        ("my secret", "request"),
        ("request", "request"),
    ],
)
def test_the_field_is_told_as_far_as_its_name_is_ours(field: str, told: str) -> None:
    """A caller may call a key as he likes, and would read it in our log."""
    assert refused_field_of(InvalidRequest(field, "value", "allowed")) == told


@pytest.mark.parametrize("error", [None, Overloaded("max_live", "x"), EngineShutdown("x")])
def test_other_refusals_are_of_no_field(error: Any) -> None:
    """Nothing was wrong with the request."""
    assert refused_field_of(error) is None


@given(st.text())
def test_no_word_of_a_caller_is_told(field: str) -> None:
    """Only names that stand in the request's own definition, or a header's."""
    told = refused_field_of(InvalidRequest(f"stop_conditions.{field}", 1, "x"))
    assert told is not None
    assert told == "stop_conditions" or told.removeprefix("stop_conditions.") in {
        "max_tokens",
        "min_tokens",
        "stop",
        "stop_token_ids",
        "stop_token_ids_visible",
        "stop_token_ids_hidden",
        "ignore_eos",
        "max_thinking_tokens",
    }
