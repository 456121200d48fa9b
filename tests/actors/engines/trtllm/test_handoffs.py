"""What a prefill engine returned reaches a decode engine whole, or is refused by name."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.engines.trtllm.library import Library
from actors.engines.trtllm.roles.handoffs import NotHandedOver, context_only, decode, encode, whole
from protocols.errors import InvalidRequest
from tests.actors.engines.trtllm.handoff_world import SOUND, handoff_library, handoffs, through_json


@pytest.fixture
def library() -> Library:
    """The double's two classes."""
    return handoff_library()


@given(data=st.data())
def test_what_a_prefill_engine_returned_comes_back_for_the_decode_engine(data: st.DataObject) -> None:
    """Every field survives the way through JSON; only the part of the request that is to be done changes."""
    library = handoff_library()
    params = data.draw(handoffs(library))

    restored = decode(through_json(encode(params)), library)

    assert restored.request_type == "generation_only"
    restored.request_type = params.request_type
    assert restored == params


def test_what_upstream_adds_for_others_is_left_out(library: Library) -> None:
    """The worker's id, the prompt of a picture and handles of its embedding are not the engine's."""
    extra = {
        "worker_id": 77,
        "_epd_metadata": {"_prefill_prompt": "x"},
        "multimodal_embedding_handles": [{"method_key": 1}],
    }

    found = decode(SOUND | extra, library)

    assert found.multimodal_embedding_handles is None
    assert found.opaque_state == b"\x00\x01\x02"


def test_a_frontend_that_turned_infinity_into_null_is_understood(library: Library) -> None:
    """Minus infinity is no JSON: a null log-probability is the least one."""
    found = decode(SOUND | {"first_gen_log_probs": [[{"token_id": 4, "logprob": None}]]}, library)

    assert found.first_gen_log_probs == [{4: library.Logprob(logprob=-9999.0, rank=None)}]


def test_infinity_of_the_engine_is_written_as_a_number(library: Library) -> None:
    """Neither minus infinity nor what is no number gets into JSON."""
    params = library.DisaggregatedParams(
        first_gen_tokens=[1],
        disagg_request_id=5,
        first_gen_log_probs=[{1: library.Logprob(float("-inf"), 1), 2: library.Logprob(float("nan"))}],
    )

    wire = through_json(encode(params))

    assert [each["logprob"] for each in wire["first_gen_log_probs"][0]] == [-9999.0, -9999.0]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"request_type": "context_and_generation"}, "request_type"),
        ({"request_type": 3}, "request_type"),
        ({"first_gen_tokens": None}, "first_gen_tokens"),
        ({"first_gen_tokens": []}, "first_gen_tokens"),
        ({"first_gen_tokens": [1, -1]}, "first_gen_tokens[1]"),
        ({"first_gen_tokens": [True]}, "first_gen_tokens[0]"),
        ({"first_gen_tokens": "11"}, "first_gen_tokens"),
        ({"first_gen_tokens": [0] * 1025}, "first_gen_tokens"),
        ({"first_gen_log_probs": [{"4": -1.0}]}, "first_gen_log_probs[0]"),
        ({"first_gen_log_probs": [[{"token_id": 4}]]}, "first_gen_log_probs[0][0]"),
        ({"first_gen_log_probs": [[{"token_id": 4, "logprob": "x"}]]}, "first_gen_log_probs[0][0]"),
        ({"first_gen_log_probs": [10**400]}, "first_gen_log_probs[0]"),
        ({"first_gen_logits": [[0.5]]}, "first_gen_logits"),
        ({"ctx_request_id": 2**64}, "ctx_request_id"),
        ({"ctx_request_id": "7"}, "ctx_request_id"),
        ({"disagg_request_id": -1}, "disagg_request_id"),
        ({"disagg_request_id": None}, "disagg_request_id"),
        ({"opaque_state": None}, "opaque_state"),
        ({"opaque_state": ""}, "opaque_state"),
        ({"opaque_state": "not base64"}, "opaque_state"),
        ({"opaque_state": "AAE"}, "opaque_state"),
        ({"opaque_state": "é"}, "opaque_state"),
        ({"opaque_state": [1]}, "opaque_state"),
        ({"opaque_state": "A" * (6 * 1024 * 1024)}, "opaque_state"),
        ({"draft_tokens": [2**32]}, "draft_tokens[0]"),
        ({"ctx_dp_rank": -1}, "ctx_dp_rank"),
        ({"ctx_dp_rank": 1.0}, "ctx_dp_rank"),
        ({"ctx_info_endpoint": "tcp"}, "ctx_info_endpoint"),
        ({"ctx_info_endpoint": "tcp://host:port"}, "ctx_info_endpoint"),
        ({"ctx_info_endpoint": "tcp://ho\nst:1"}, "ctx_info_endpoint"),
        ({"ctx_info_endpoint": 5}, "ctx_info_endpoint"),
        ({"ctx_info_endpoint": "tcp://" + "h" * 2000 + ":1"}, "ctx_info_endpoint"),
        ({"schedule_style": 1}, "schedule_style"),
        ({"schedule_style": False}, "schedule_style"),
        ({"ctx_usage": [5]}, "ctx_usage"),
        ({"ctx_usage": {"prompt_tokens": "5"}}, "ctx_usage.prompt_tokens"),
        ({"ctx_usage": {"a": {"b": {"c": 1}}}}, "ctx_usage.b"),
        ({"conversation_id": " "}, "conversation_id"),
        ({"conversation_id": "\ud800"}, "conversation_id"),
        ({"multimodal_hashes": [[1, 2]]}, "multimodal_hashes[0]"),
        ({"mrope_position_ids_handle": {"a": 1}}, "mrope_position_ids_handle"),
        ({"mrope_position_deltas_handle": {"a": 1}}, "mrope_position_deltas_handle"),
        ({"logical_request_id": 5}, "logical_request_id"),
    ],
)
def test_what_the_engine_could_not_use_is_refused_by_name(
    library: Library, change: dict[str, Any], field: str
) -> None:
    """The caller hears which field of the hand-off is wrong, before the engine has seen any of it."""
    with pytest.raises(InvalidRequest) as refused:
        decode(SOUND | change, library)

    assert refused.value.field == f"prefill_result.disaggregated_params.{field}"


@given(
    mapping=st.dictionaries(
        st.sampled_from([*SOUND, "first_gen_log_probs", "ctx_usage", "ctx_dp_rank", "x"])
        | st.text(max_size=5),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
            ),
            max_leaves=8,
        ),
        max_size=6,
    )
)
def test_any_mapping_is_read_or_refused(mapping: dict[str, Any]) -> None:
    """Whatever a peer sends, nothing but a refusal leaves the codec."""
    try:
        outcome = decode(SOUND | mapping, handoff_library()).request_type
    except InvalidRequest as refused:
        outcome = refused.field

    assert outcome == "generation_only" or outcome.startswith("prefill_result.disaggregated_params.")


def test_a_release_without_a_field_refuses_it_by_name(library: Library) -> None:
    """A hand-off of a newer release is not cut to what an older one knows."""
    from dataclasses import dataclass
    from types import SimpleNamespace

    @dataclass(kw_only=True)
    class OldParams:
        request_type: str
        first_gen_tokens: list[int]
        opaque_state: bytes
        disagg_request_id: int

    old: Any = SimpleNamespace(DisaggregatedParams=OldParams, Logprob=library.Logprob)

    assert decode(SOUND | {"conversation_id": None}, old).first_gen_tokens == [11]
    with pytest.raises(InvalidRequest, match="conversation_id"):
        decode(SOUND | {"conversation_id": "c"}, old)


@pytest.mark.parametrize(
    "made",
    [
        {"first_gen_logits": [object()]},
        {"mrope_position_ids_handle": {"a": 1}},
        {"first_gen_log_probs": [[{}]]},
    ],
)
def test_what_cannot_be_handed_over_fails_by_name(library: Library, made: dict[str, Any]) -> None:
    """Tensors, handles of a device's memory and the scores of several beams are not JSON."""
    with pytest.raises(NotHandedOver, match=next(iter(made))):
        encode(library.DisaggregatedParams(first_gen_tokens=[1], ctx_request_id=5, **made))


@pytest.mark.parametrize("made", [{"first_gen_tokens": [1]}, {"ctx_request_id": 5}, {"first_gen_tokens": []}])
def test_half_a_hand_off_is_none(library: Library, made: dict[str, Any]) -> None:
    """A decode worker could not find the cache, or would not know how the answer begins."""
    with pytest.raises(NotHandedOver):
        encode(library.DisaggregatedParams(**made))


def test_each_request_says_what_is_to_be_done_of_it(library: Library) -> None:
    """A prefill has the id of both engines; a request that is served whole needs none."""
    assert context_only(library, 5).request_type == "context_only"
    assert context_only(library, 5).disagg_request_id == 5
    assert whole(library).request_type == "context_and_generation"
