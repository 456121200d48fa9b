"""What a worker's status says when nobody wants anything of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def is_at_rest(status: Mapping[str, Any]) -> bool:
    """Whether nobody is live, waits or reads, and the engine holds nothing."""
    return not any(status[name] for name in ("live", "in_flight", "waiting", "readers"))
