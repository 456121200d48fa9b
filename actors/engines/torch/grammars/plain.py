"""JSON, and what came out of it, with types."""

from __future__ import annotations

import json
from typing import Any, NoReturn, cast


def read_json(text: str | bytes) -> Any:
    """Raises ValueError for what is no JSON (NaN is none), and RecursionError."""
    return json.loads(text, parse_constant=_no_constant)


def write_json(value: object) -> str:
    """Without blanks, the order of keys kept. Raises TypeError, ValueError and RecursionError."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def as_object(value: object) -> dict[str, Any] | None:
    """The value, if it is an object."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def as_list(value: object) -> list[Any] | None:
    """The value, if it is a list."""
    is_list = isinstance(value, list)
    return cast("list[Any]", value) if is_list else None


def as_texts(value: object) -> list[str] | None:
    """The value, if it is a list of strings that are not empty."""
    items = as_list(value)
    if items is None or not all(isinstance(item, str) and item for item in items):
        return None
    return items


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
