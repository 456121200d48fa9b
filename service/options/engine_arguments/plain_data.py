"""Only plain values, and not too many of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Iterable

# Far more than any engine's file holds; a file of aliases to aliases can stand for billions.
_VALUES = 10_000
_DEPTH = 32
_SCALARS = (bool, int, float, str, type(None))


def measure(document: object) -> None:
    """Raises ValueError for what is too large or too deep, or no plain data."""
    waiting = [(document, 0)]
    seen = 0
    while waiting:
        value, depth = waiting.pop()
        seen += 1
        if seen > _VALUES or depth > _DEPTH:
            raise ValueError(f"holds more than {_VALUES} values, or nests them deeper than {_DEPTH}")
        waiting.extend((part, depth + 1) for part in _parts(value))


def _parts(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return cast("Mapping[object, object]", value).values()
    if isinstance(value, list):
        return cast("list[object]", value)
    if not isinstance(value, _SCALARS):
        raise ValueError(f"holds a {type(value).__name__}, which is no plain value; write it as a text")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"holds {value}, which is no number")
    return ()
