"""The way from a request to what it was on another worker, for those who read traces."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

_NO_ID = re.compile(r"0+")
_TRACE_ID = re.compile(r"[0-9a-f]{32}")
_SPAN_ID = re.compile(r"[0-9a-f]{16}")


class TraceLink(NamedTuple):
    """The framework's span around a request's life on the worker before: lower-case hex ids."""

    trace_id: str
    span_id: str


def read_trace_link(wire: object) -> TraceLink | None:
    """What a frontend writes into a request that it moves. Whatever else stands there is no link.

    It is for traces alone, so it can never be the reason to refuse a request.
    """
    if not isinstance(wire, Mapping):
        return None
    link = cast("Mapping[object, Any]", wire)
    trace_id, span_id = _id(link.get("trace_id"), _TRACE_ID), _id(link.get("span_id"), _SPAN_ID)
    return None if trace_id is None or span_id is None else TraceLink(trace_id, span_id)


def _id(found: object, form: re.Pattern[str]) -> str | None:
    if not isinstance(found, str) or not form.fullmatch(found) or _NO_ID.fullmatch(found):
        return None
    return found
