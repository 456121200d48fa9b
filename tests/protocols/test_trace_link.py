"""The link to a request's life on another worker."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.requests import decode_request, unknown_keys
from protocols.trace_link import TraceLink, read_trace_link

TRACE_ID, SPAN_ID = "0123456789abcdef0123456789abcdef", "1122334455667788"


def test_a_link_is_read() -> None:
    """As a frontend writes it, whatever later versions add."""
    link = {"trace_id": TRACE_ID, "span_id": SPAN_ID}
    assert read_trace_link(link) == read_trace_link({**link, "flags": 1}) == TraceLink(TRACE_ID, SPAN_ID)


@pytest.mark.parametrize(
    "wire",
    [
        None,
        "",
        [],
        {},
        {"trace_id": TRACE_ID},
        {"trace_id": TRACE_ID.upper(), "span_id": SPAN_ID},
        {"trace_id": "0" * 32, "span_id": SPAN_ID},
        {"trace_id": TRACE_ID, "span_id": "0" * 16},
        {"trace_id": TRACE_ID, "span_id": 7},
        {"trace_id": TRACE_ID + "\n", "span_id": SPAN_ID},
    ],
)
def test_whatever_is_no_link_is_none(wire: Any) -> None:
    """And no reason to refuse the request that carries it, nor to name its key."""
    assert read_trace_link(wire) is None
    request = {"token_ids": [1], "migration_link": wire}
    assert decode_request(request).migration_link == wire
    assert unknown_keys(request) == []


@given(st.recursive(st.none() | st.text() | st.integers(), lambda inner: st.dictionaries(st.text(), inner)))
def test_nothing_a_caller_sends_raises(wire: Any) -> None:
    """A link or none."""
    link = read_trace_link(wire)
    assert link is None or isinstance(link, TraceLink)
