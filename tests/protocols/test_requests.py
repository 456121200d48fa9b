"""Promises of the decoder: every fault is named with its place, its value and what is allowed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocols.errors import InvalidRequest
from protocols.requests import GenerateRequest, decode_request, is_probe, unknown_keys
from tests.doubles.callers import PROMPT, wire_request

LARGEST_ID = 2**32 - 1


def refusal(wire: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        decode_request(wire)
    return caught.value


def test_a_request_as_the_framework_sends_it() -> None:
    """Groups with all their keys, None for 'not set', and keys that are meant for others."""
    request = decode_request(wire_request(max_tokens=3, stop_token_ids_hidden=[2], seed=5000, logprobs=3))
    assert request.token_ids == list(PROMPT)
    assert request.stop_conditions.max_tokens == 3
    assert request.stop_conditions.stop is None
    assert request.sampling_options.seed == 5000
    assert request.output_options.logprobs == 3
    assert request.eos_token_ids == [2]


@pytest.mark.parametrize("group", ["stop_conditions", "sampling_options", "output_options"])
def test_a_group_that_is_none_is_a_group_that_says_nothing(group: str) -> None:
    """None and absent and empty mean the same."""
    plain = decode_request({"token_ids": [1]})
    assert decode_request({"token_ids": [1], group: None}) == plain
    assert decode_request({"token_ids": [1], group: {}}) == plain


@pytest.mark.parametrize("group", ["stop_conditions", "sampling_options", "output_options"])
def test_an_unknown_key_of_a_known_group_is_refused_by_name(group: str) -> None:
    """No option is dropped on the floor (S06)."""
    error = refusal({"token_ids": [1], group: {"unknown_option": 7}})
    assert error.field == f"{group}.unknown_option"
    assert error.value == 7
    assert str(error) == f"{group}.unknown_option: 7 is not accepted: nothing; this field has no meaning here"


def test_a_key_of_the_wrong_group_is_unknown_there() -> None:
    """Options are read in their own group only."""
    assert (
        refusal({"token_ids": [1], "sampling_options": {"max_tokens": 3}}).field
        == "sampling_options.max_tokens"
    )


def test_unknown_keys_at_the_top_are_listed() -> None:
    """Later frameworks add keys: they are named, once each, and do not stop a request."""
    wire = wire_request(
        brand_new=1, is_none=None, agent_context={"session_id": "s"}, request_timestamp_ms=1.5
    )
    assert unknown_keys(wire) == ["brand_new"]
    assert decode_request(wire).token_ids == list(PROMPT)


def test_the_routers_own_groups_are_open() -> None:
    """What only a router reads may grow."""
    wire = wire_request(
        routing={"priority": 2.0, "priority_jump": 5.0}, extra_args={"nvext": {"token_in": True}}
    )
    request = decode_request(wire)
    assert request.routing is not None
    assert request.routing.priority == 2.0


def test_a_request_without_tokens_names_them() -> None:
    """The one required field."""
    assert refusal({}).field == "token_ids"
    assert refusal({"token_ids": None}).field == "token_ids"


@pytest.mark.parametrize(
    ("wire", "field", "value", "allowed"),
    [
        ({"token_ids": [1, -1]}, "token_ids[1]", -1, ">= 0"),
        ({"token_ids": [LARGEST_ID + 1]}, "token_ids[0]", LARGEST_ID + 1, f"<= {LARGEST_ID}"),
        ({"token_ids": [1, "2"]}, "token_ids[1]", "2", "Expected `int`"),
        ({"token_ids": [1, True]}, "token_ids[1]", True, "Expected `int`"),
        ({"token_ids": [1, 2.5]}, "token_ids[1]", 2.5, "Expected `int`"),
        ({"token_ids": "12"}, "token_ids", "12", "Expected `array`"),
        (wire_request(max_tokens=0), "stop_conditions.max_tokens", 0, ">= 1"),
        (wire_request(max_tokens=1.5), "stop_conditions.max_tokens", 1.5, "Expected `int | null`"),
        (wire_request(min_tokens=-1), "stop_conditions.min_tokens", -1, ">= 0"),
        (wire_request(stop="x"), "stop_conditions.stop", "x", "Expected `array | null`"),
        (wire_request(stop=["x", 3]), "stop_conditions.stop[1]", 3, "Expected `str`"),
        (wire_request(stop_token_ids=[7, -7]), "stop_conditions.stop_token_ids[1]", -7, ">= 0"),
        (wire_request(stop_token_ids_hidden=[-1]), "stop_conditions.stop_token_ids_hidden[0]", -1, ">= 0"),
        (wire_request(ignore_eos=1), "stop_conditions.ignore_eos", 1, "Expected `bool | null`"),
        (wire_request(temperature="1"), "sampling_options.temperature", "1", "Expected `float | null`"),
        (wire_request(temperature=True), "sampling_options.temperature", True, "Expected `float | null`"),
        (wire_request(temperature=10**400), "sampling_options.temperature", 10**400, "out of range"),
        (
            wire_request(guided_decoding="x"),
            "sampling_options.guided_decoding",
            "x",
            "Expected `object | null`",
        ),
        (wire_request(logprobs="3"), "output_options.logprobs", "3", "Expected `int | null`"),
        (wire_request(eos_token_ids=[-2]), "eos_token_ids[0]", -2, ">= 0"),
        (wire_request(annotations=[5]), "annotations[0]", 5, "Expected `str`"),
        (wire_request(routing={"dp_rank": "0"}), "routing.dp_rank", "0", "Expected `int | null`"),
        (wire_request(stop_conditions=[]), "stop_conditions", [], "Expected `object`"),
        (wire_request(extra_args={1: 2}), "extra_args", {1: 2}, "Expected `str`"),
        (wire_request(_HEALTH_CHECK="yes"), "_HEALTH_CHECK", "yes", "Expected `bool`"),
        ([], "request", [], "an object"),
        (None, "request", None, "an object"),
    ],
)
def test_a_fault_is_named_with_place_value_and_what_is_allowed(
    wire: Any, field: str, value: Any, allowed: str
) -> None:
    """All three are in the fields of the error and in its text."""
    error = refusal(wire)
    assert (error.field, error.value) == (field, value)
    assert allowed in error.allowed
    assert str(error).startswith(f"{field}: ")
    assert str(error).endswith(error.allowed)


def test_a_huge_value_is_shown_shortened_and_never_written_out() -> None:
    """The text stays small, whatever was sent."""
    for value in ("x" * 10**7, ["y" * 1000] * 1000, {"k": "z" * 10**6}, 10**5000):
        assert len(str(refusal(wire_request(stop_conditions=value)))) < 300
    assert "this int" in str(refusal(wire_request(model=10**5000)))
    assert len(str(refusal(wire_request(stop_conditions={"x" * 10**6: 1})))) < 300


def test_only_the_exact_mark_is_a_probe() -> None:
    """The mark is the framework's; nothing else counts."""
    assert is_probe({"_HEALTH_CHECK": True})
    unmarked: tuple[Any, ...] = ({}, {"_HEALTH_CHECK": 1}, {"_HEALTH_CHECK": None}, [], None)
    assert not any(is_probe(wire) for wire in unmarked)


Anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.binary(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=8) | st.integers() | st.none(), inner, max_size=4)
    ),
    max_leaves=12,
)
GROUPS = ("stop_conditions", "sampling_options", "output_options")
TOP = sorted({*wire_request(), "routing", "extra_args", "_HEALTH_CHECK", "prefill_result", "brand_new"})
OPTIONS = sorted({key for group in GROUPS for key in wire_request()[group]} | {"unknown`option` - at `$.x`"})


@st.composite
def nearly_right(draw: st.DrawFn) -> dict[str, Any]:
    """A good request with a few things put where they may not belong."""
    wire = wire_request()
    for key, value in draw(st.dictionaries(st.sampled_from(TOP), Anything, max_size=2)).items():
        wire[key] = value
    group = draw(st.sampled_from(GROUPS))
    if isinstance(wire[group], dict):
        wire[group] |= draw(st.dictionaries(st.sampled_from(OPTIONS), Anything, max_size=3))
    return wire


@given(wire=st.one_of(Anything, nearly_right(), st.dictionaries(st.sampled_from(TOP), Anything, max_size=6)))
@example(wire={"token_ids": [1], "a\ud800": 1})
@example(wire={"token_ids": [1], "`": {"` - at `": 1}})
def test_decoding_gives_a_request_or_an_invalid_request(wire: Any) -> None:
    """Nothing else is ever raised, and every refusal says where, what and what instead."""
    outcome: GenerateRequest | InvalidRequest
    try:
        outcome = decode_request(wire)
    except InvalidRequest as exc:
        outcome = exc
    if isinstance(outcome, GenerateRequest):
        assert all(type(token) is int and 0 <= token <= LARGEST_ID for token in outcome.token_ids)
    else:
        assert outcome.field
        assert outcome.allowed
        assert len(str(outcome)) < 1000
