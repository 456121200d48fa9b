"""What a worker's log says became of each request, by the trace that its client chose.

The worker must run with `TRACED`: only then does the framework hand the client's trace on.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

TRACED = {"DYN_LOGGING_JSONL": "1"}
_FIRST_TRACE = 0xF0220000_00000000_00000000_00000000


def trace_id(number: int) -> str:
    """The trace of a client's request of this number."""
    return f"{_FIRST_TRACE + number:032x}"


def trace_header(number: int) -> dict[str, str]:
    """What the client sends, so that its request can be found again."""
    return {"traceparent": f"00-{trace_id(number)}-00f067aa0ba902b7-01"}


def request_lines(log: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
    """The fields of every line ``request.ended``, by trace; one for each prompt of a request."""
    lines: dict[str, list[dict[str, Any]]] = {}
    for line in log:
        if "request.ended" not in line:
            continue
        with suppress(ValueError):
            fields = json.loads(json.loads(line)["message"])
            lines.setdefault(fields.get("trace_id", ""), []).append(fields)
    return lines
