"""Marks of a request's tokens: the first, the last, and evenly what fits between them."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from actors.pace import MOST_MARKS, Pace
from protocols.telemetry import Mark


def pace_of(steps: list[list[int]]) -> Pace:
    """Step i ends at i seconds; its entries are the tokens of one choice each."""
    pace = Pace()
    for at_s, choices in enumerate(steps):
        for tokens in choices:
            pace.note(float(at_s), tokens)
    return pace


def test_a_short_request_has_a_mark_for_every_step() -> None:
    """Up to MOST_MARKS steps nothing is left out."""
    assert pace_of([[1], [2], [1]]).marks() == (Mark(0.0, 1), Mark(1.0, 3), Mark(2.0, 4))
    assert len(pace_of([[1]] * MOST_MARKS).marks()) == MOST_MARKS


def test_the_choices_of_a_step_share_its_mark() -> None:
    """Tokens that came together are one mark with all of them."""
    assert pace_of([[1, 1, 1], [1, 1]]).marks() == (Mark(0.0, 3), Mark(1.0, 5))


def test_without_tokens_there_are_no_marks() -> None:
    """A request that never got one has nothing to mark."""
    assert Pace().marks() == ()


@given(st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=3), min_size=1, max_size=900))
def test_marks_are_few_even_true_and_complete(steps: list[list[int]]) -> None:
    """At most MOST_MARKS + 1, the first and the last among them, equally far apart, each with its count."""
    marks = pace_of(steps).marks()
    assert len(marks) <= MOST_MARKS + 1
    assert (marks[0].at_s, marks[-1].at_s) == (0.0, float(len(steps) - 1))
    for mark in marks:
        assert mark.tokens == sum(sum(choices) for choices in steps[: int(mark.at_s) + 1])
    distances = {after.at_s - before.at_s for before, after in pairwise(marks[:-1])}
    assert len(distances) <= 1
    if len(steps) > MOST_MARKS:
        assert len(marks) > MOST_MARKS // 2
