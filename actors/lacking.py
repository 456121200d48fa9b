"""How a request is told that the engine of this worker lacks what it asks for."""

from __future__ import annotations

from protocols.engine import NEVER
from protocols.errors import InvalidRequest


def lacking(field: str, value: object, engine: str, why: str = NEVER) -> InvalidRequest:
    """The refusal to raise. why: of `protocols.engine.EngineCapabilities`."""
    return InvalidRequest(field, value, f"nothing; engine {engine!r}: {why}")
