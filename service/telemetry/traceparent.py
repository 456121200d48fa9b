"""W3C trace context: who is above us in the trace, and whether anybody records."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

HEADER = "traceparent"
# version-trace-parent-flags. Versions after 00 may append fields, 00 may not, ff is forbidden.
_FORM = re.compile(r"(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[!-~]*)?")
_NO_TRACE = "0" * 32
_NO_SPAN = "0" * 16
_SAMPLED = 0x01
_ODD = tuple("13579bdf")


class TraceParent(NamedTuple):
    """The span above us: lower-case hex ids of 32 and 16 characters, and the flags byte."""

    trace_id: str
    span_id: str
    flags: int

    @property
    def is_sampled(self) -> bool:
        """Whether the caller wants this request recorded."""
        return bool(self.flags & _SAMPLED)

    def header_of(self, span_id: str) -> str:
        """The header for whoever works below the span ``span_id``: same trace, same flags."""
        return f"00-{self.trace_id}-{span_id}-{self.flags:02x}"


def may_be_sampled(headers: Mapping[str, str]) -> bool:
    """A look at one character, before anything is parsed: false for nearly all of what is not sampled."""
    # Position 54 is the lower half of the flags in every version.
    return headers.get(HEADER, "")[54:55] in _ODD


def parse_traceparent(headers: Mapping[str, str] | None) -> TraceParent | None:
    """The parent named in the headers; None when there is none or it breaks the standard's form."""
    if not headers:
        return None
    match = _FORM.fullmatch(headers.get(HEADER, ""))
    if match is None:
        return None
    version, trace_id, span_id, flags, more = match.groups()
    if trace_id == _NO_TRACE or span_id == _NO_SPAN or (more and version == "00"):
        return None
    return TraceParent(trace_id, span_id, int(flags, 16))
