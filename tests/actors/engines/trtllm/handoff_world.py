"""The two classes of TensorRT-LLM that a hand-off needs, of the double; and hand-offs made of them."""

from __future__ import annotations

import json
from functools import cache
from importlib import import_module
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import strategies as st

from actors.engines.trtllm.library import Library
from tests.doubles.trtllm_site import double_on_path

# The least that a decode engine can work with.
SOUND: dict[str, Any] = {
    "request_type": "context_only",
    "first_gen_tokens": [11],
    "opaque_state": "AAEC",
    "disagg_request_id": 123456789012345,
}


@cache
def handoff_library() -> Library:
    """The classes, with nothing else of the library; imported once, as that takes its time."""
    with double_on_path():
        params = import_module("tensorrt_llm.disaggregated_params").DisaggregatedParams
        logprob = import_module("tensorrt_llm.executor.outputs").Logprob
    return cast("Library", SimpleNamespace(DisaggregatedParams=params, Logprob=logprob))


def handoffs(library: Library) -> st.SearchStrategy[Any]:
    """``DisaggregatedParams`` as a prefill engine may return them for a text."""
    token = st.integers(0, 2**32 - 1)
    number = st.floats(allow_nan=False, allow_infinity=False, max_value=0.0)
    logprob = st.builds(library.Logprob, logprob=number, rank=st.none() | st.integers(1, 10**6))
    positions = st.lists(
        st.dictionaries(token, logprob, min_size=1, max_size=4) | number, min_size=1, max_size=3
    )
    counts = st.dictionaries(
        st.from_regex(r"[a-z_]{1,12}", fullmatch=True), st.integers(0, 2**40), max_size=3
    )
    text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).filter(str.strip)
    return st.builds(
        library.DisaggregatedParams,
        request_type=st.just("context_only"),
        first_gen_tokens=st.lists(token, min_size=1, max_size=4),
        first_gen_log_probs=st.none() | positions,
        ctx_request_id=st.none() | st.integers(0, 2**64 - 1),
        opaque_state=st.binary(min_size=1, max_size=64),
        draft_tokens=st.none() | st.lists(token, max_size=4),
        disagg_request_id=st.integers(0, 2**63 - 1),
        ctx_dp_rank=st.none() | st.integers(0, 1000),
        ctx_info_endpoint=st.none() | st.integers(1, 65535).map(lambda port: f"tcp://host:{port}"),
        schedule_style=st.none() | st.just(0),
        ctx_usage=st.none() | counts | counts.map(lambda inner: {"prompt_tokens": 5, "details": inner}),
        conversation_id=st.none() | text,
    )


def through_json(value: dict[str, Any]) -> dict[str, Any]:
    """The way of a hand-off: no value in it but JSON's own."""
    found: dict[str, Any] = json.loads(json.dumps(value, allow_nan=False))
    return found
