"""JSON as it is meant: no NaN, and no key twice, since one of the values would be passed over in silence."""

from __future__ import annotations

import json
from typing import Any, NoReturn


def read_json(text: str | bytes) -> Any:
    """Raises ValueError for what is no JSON, NaN and an object with a key twice included; RecursionError."""
    return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_no_twins)


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def _no_twins(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found


DECODER = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_no_twins)
"""For JSON in the middle of a text."""
