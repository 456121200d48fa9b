"""Numbers just outside of the bounds of a schema."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.engines.trtllm.constraints.number_probes import bounded_numbers, forbidden_numbers

NUMBERS = st.integers(-(10**6), 10**6) | st.decimals(-1000, 1000, places=2).map(float)
KEYWORDS = st.sampled_from(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"])


@given(st.sampled_from(["integer", "number"]), st.dictionaries(KEYWORDS, NUMBERS, min_size=1))
def test_none_of_them_is_allowed(kind: str, told: dict[str, Any]) -> None:
    """Each breaks at least one bound, is a number as JSON writes it, and is whole where it has to be."""
    exact = {keyword: Decimal(str(value)) for keyword, value in told.items()}
    for bounds in bounded_numbers(json.dumps({"type": kind, **told})):
        for text in forbidden_numbers(bounds):
            number = Decimal(text)
            assert json.loads(text) == pytest.approx(float(number))
            assert kind == "number" or "." not in text
            assert any(
                [
                    number < exact.get("minimum", number),
                    number > exact.get("maximum", number),
                    "exclusiveMinimum" in exact and number <= exact["exclusiveMinimum"],
                    "exclusiveMaximum" in exact and number >= exact["exclusiveMaximum"],
                ]
            )


@given(st.integers(-(10**6), 10**6), st.sampled_from(["minimum", "maximum"]))
def test_the_nearest_is_among_them(bound: int, keyword: str) -> None:
    """The next whole number beyond a bound is asked for."""
    (bounds,) = bounded_numbers(json.dumps({"type": "integer", keyword: bound}))
    assert str(bound - 1 if keyword == "minimum" else bound + 1) in set(forbidden_numbers(bounds))


def test_where_bounds_are_found() -> None:
    """In all schemas inside, for each type of number, once; not in values that only look like schemas."""
    bounded = {"type": ["integer", "number", "null"], "minimum": 3}
    schema = {
        "type": "object",
        "properties": {"a": bounded, "b": bounded, "minimum": {"type": "string"}},
        "$defs": {"c": {"items": {"type": "number", "exclusiveMaximum": 1}}},
        "default": {"type": "integer", "minimum": 9},
    }
    assert {bounds.schema for bounds in bounded_numbers(json.dumps(schema))} == {
        '{"type":"integer","minimum":3}',
        '{"type":"number","minimum":3}',
        '{"type":"number","exclusiveMaximum":1}',
    }
