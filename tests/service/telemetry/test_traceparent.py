"""W3C trace context, strictly."""

from __future__ import annotations

import pytest

from service.telemetry.traceparent import TraceParent, may_be_sampled, parse_traceparent
from tests.service.telemetry.tales import PARENT_ID, TRACE_ID


def _parsed(text: str) -> TraceParent | None:
    return parse_traceparent({"traceparent": text})


@pytest.mark.parametrize(("flags", "is_sampled"), [("00", False), ("01", True), ("03", True), ("fe", False)])
def test_reads_ids_and_flags(flags: str, *, is_sampled: bool):
    """The lowest bit decides; the others are kept."""
    parent = _parsed(f"00-{TRACE_ID}-{PARENT_ID}-{flags}")
    assert parent is not None
    assert parent == (TRACE_ID, PARENT_ID, int(flags, 16))
    assert parent.is_sampled is is_sampled
    assert may_be_sampled({"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-{flags}"}) is is_sampled


def test_child_keeps_trace_and_flags():
    """Whoever works below a span of ours sees its id, the caller's trace and the caller's flags."""
    parent = _parsed(f"00-{TRACE_ID}-{PARENT_ID}-03")
    assert parent is not None
    assert parent.header_of("a" * 16) == f"00-{TRACE_ID}-{'a' * 16}-03"


def test_a_later_version_is_read_as_far_as_it_is_known():
    """It may have more fields; the first four keep their meaning."""
    assert _parsed(f"01-{TRACE_ID}-{PARENT_ID}-01-more") == (TRACE_ID, PARENT_ID, 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "garbage",
        f"ff-{TRACE_ID}-{PARENT_ID}-01",
        f"00-{TRACE_ID}-{PARENT_ID}-01-more",
        f"00-{'0' * 32}-{PARENT_ID}-01",
        f"00-{TRACE_ID}-{'0' * 16}-01",
        f"00-{TRACE_ID.upper()}-{PARENT_ID}-01",
        f"00-{TRACE_ID}-{PARENT_ID}-1",
        f" 00-{TRACE_ID}-{PARENT_ID}-01",
        f"00-{TRACE_ID}-{PARENT_ID}-01\n",
    ],
)
def test_what_breaks_the_form_is_no_parent(text: str):
    """A trace is joined as the standard says, or not at all."""
    assert _parsed(text) is None


@pytest.mark.parametrize("headers", [None, {}, {"request-id": "x"}])
def test_no_header_no_parent(headers: dict[str, str] | None):
    """Most requests are not traced."""
    assert parse_traceparent(headers) is None
