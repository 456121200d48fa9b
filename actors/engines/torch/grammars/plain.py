"""What came out of JSON, with types."""

from __future__ import annotations

from typing import Any, cast


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
