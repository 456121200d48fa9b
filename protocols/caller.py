"""The one who asks, as the graph sees him."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Caller(Protocol):
    """One call of ``generate()`` from outside. Read from the event loop only."""

    @property
    def context_id(self) -> str:
        """The caller's id. Not unique: a request that was moved here may meet its own past."""
        ...

    @property
    def metadata(self) -> Mapping[str, str]:
        """What the client sent in ``x-dynamo-meta-*`` headers, without that prefix."""
        ...

    @property
    def trace_headers(self) -> Mapping[str, str] | None:
        """W3C trace headers of the span above us, or None when nobody traces."""
        ...

    def is_stopped(self) -> bool:
        """Whether the caller has left."""
        ...
