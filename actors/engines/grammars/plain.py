"""What came out of JSON, with types, and the way back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from typing import Any, cast


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


def is_longer(value: object, most: int) -> bool:
    """Whether the JSON of a value surely has more characters than that; looks at no more than it must.

    Counts what is there in any spelling. The rest, such as escapes, is at most a few times as much.
    """
    length, level = 0, [iter([value])]
    while level and length <= most:
        for item in level[-1]:
            length += _least_length(item)
            if length > most:
                break
            if isinstance(item, dict | list | tuple):
                level.append(_members(cast("Any", item)))
                break
        else:
            level.pop()
    return length > most


def _least_length(value: Any) -> int:
    """Without what is in it, but with everything between: a list of millions is told by its length alone."""
    if isinstance(value, str):
        return len(value) + 2
    if isinstance(value, dict | list | tuple):
        # Brackets and commas, and for each member a colon.
        members = len(cast("list[Any]", value))
        return max(2, members + 1) + (members if isinstance(value, dict) else 0)
    # Ten bits make three digits, and a little.
    return value.bit_length() * 3 // 10 if isinstance(value, int) and value.bit_length() > 64 else 1


def _members(value: Any) -> Iterator[object]:
    members = as_object(value)
    return iter(value) if members is None else chain.from_iterable(members.items())
