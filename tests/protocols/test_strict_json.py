"""JSON in which nothing can be passed over."""

from __future__ import annotations

import pytest

from protocols.strict_json import read_json


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a": 1, "a": 2}', "a key is there twice"),
        ('[{"b": {"c": 1, "c": 1}}]', "a key is there twice"),
        ("NaN", "NaN is not JSON"),
        ('{"a": -Infinity}', "-Infinity is not JSON"),
        ("{", "Expecting"),
        ("", "Expecting"),
    ],
)
def test_what_says_two_things_or_none_is_refused(text: str, why: str) -> None:
    """A key that is there twice, at any depth, numbers that are none, and what is no JSON."""
    with pytest.raises(ValueError, match=why):
        read_json(text)


def test_anything_else_is_what_it_says() -> None:
    """As text and as bytes."""
    assert (
        read_json('{"a": [1, {"a": null}]}')
        == read_json(b'{"a": [1, {"a": null}]}')
        == {"a": [1, {"a": None}]}
    )
