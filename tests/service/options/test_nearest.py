"""Guessing the name that was meant."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from service.options.nearest import edit_distance, is_near_miss, nearest

_WORDS = st.text("abc-_", max_size=8)


@given(_WORDS, _WORDS)
def test_distance_is_symmetric_and_zero_only_for_equals(left: str, right: str) -> None:
    """As a distance should be."""
    assert edit_distance(left, right) == edit_distance(right, left)
    assert (edit_distance(left, right) == 0) == (left == right)


def test_one_slip_costs_one() -> None:
    """A letter too few, too many, wrong, or two swapped."""
    for slip in ("drin", "draain", "drawn", "drian"):
        assert edit_distance("drain", slip) == 1


@given(st.lists(_WORDS, min_size=1), _WORDS)
def test_a_guess_is_one_of_the_names(names: list[str], word: str) -> None:
    """Always, and the name itself when it is there."""
    assert nearest(word, names) in names


def test_the_beginning_of_a_name_means_that_name() -> None:
    """Upstream's parser takes abbreviations; here they get the full name as a hint."""
    assert nearest("--served", ["--seed", "--served-model-name"]) == "--served-model-name"


def test_short_names_tolerate_fewer_slips() -> None:
    """DYN_LOG is not DYN_FOO."""
    assert is_near_miss("DYN_LOGS", "DYN_LOG")
    assert not is_near_miss("DYN_FOO", "DYN_LOG")
    assert not is_near_miss("DYN_LOG", "DYN_LOG")
