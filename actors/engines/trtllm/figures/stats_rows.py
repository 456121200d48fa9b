"""Rows of TensorRT-LLM's iteration statistics: any key may be absent, and any value may be anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

Row = Mapping[str, Any]
_NOTHING: Row = {}


def row_of(value: object) -> Row | None:
    """A row; None for what is none."""
    return cast("Row", value) if isinstance(value, Mapping) else None


def part_of(row: Row, name: str) -> Row:
    """A part of a row; empty where there is none."""
    return row_of(row.get(name)) or _NOTHING


def rank_of(row: Row, ranks: int) -> int | None:
    """The attention-DP rank that tells it, 0 where there is only one; None for one that does not exist."""
    rank = row.get("attentionDpRank", 0)
    return rank if type(rank) is int and 0 <= rank < ranks else None


def count_of(row: Row, name: str) -> int | None:
    """A whole number from 0; None where there is none."""
    value = row.get(name)
    return value if type(value) is int and value >= 0 else None


def share_of(row: Row, name: str) -> float | None:
    """A number from 0 to 1; None where there is none."""
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= 1 else None
