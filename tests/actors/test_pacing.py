"""Marks of a request's tokens: the first step, and evenly what fits after it."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from actors.pacing import MOST_MARKS, Pacing
from protocols.telemetry import Pace

Steps = list[tuple[float, list[int]]]


def pace_of(steps: Steps) -> Pace:
    """Each step lasts so many seconds; its entries are the tokens of one choice each."""
    pacing, at_s = Pacing(), 0.0
    for seconds, choices in steps:
        at_s += seconds
        for tokens in choices:
            pacing.note(at_s, tokens)
    return pacing.pace()


def test_a_short_request_has_a_mark_for_every_step() -> None:
    """Below MOST_MARKS nothing is left out: when, how many so far, and how long a token took."""
    assert pace_of([(1.0, [1]), (0.5, [2]), (2.0, [1])]) == Pace((1.0, 1.5, 3.5), (1, 3, 4), (0.0, 0.25, 2.0))
    assert len(pace_of([(1.0, [1])] * (MOST_MARKS - 1)).at_s) == MOST_MARKS - 1


def test_the_choices_of_a_step_share_its_mark() -> None:
    """They run side by side: the gap is that of one choice, the tokens are everybody's."""
    assert pace_of([(1.0, [1, 1]), (0.5, [1, 1])]) == Pace((1.0, 1.5), (1, 3), (0.0, 0.5))


def test_without_tokens_there_are_no_marks() -> None:
    """A request that never got one has nothing to mark."""
    assert Pacing().pace() == Pace()


# Sums of binary fractions are exact, so that equal distances are equal.
A_STEP = st.tuples(st.sampled_from([0.125, 0.25, 1.0]), st.lists(st.integers(1, 5), min_size=1, max_size=3))


@given(st.lists(A_STEP, min_size=1, max_size=900))
def test_marks_are_few_and_even_and_true(steps: Steps) -> None:
    """Never more than MOST_MARKS, every so many-th step from the first on, each with its own time and gap."""
    ends_s = [sum(seconds for seconds, _ in steps[: number + 1]) for number in range(len(steps))]
    pace = pace_of(steps)
    marked = [ends_s.index(at_s) for at_s in pace.at_s]
    assert len(marked) <= MOST_MARKS
    assert marked[0] == 0
    assert len({after - before for before, after in pairwise(marked)}) <= 1
    if len(steps) >= MOST_MARKS:
        assert len(marked) >= MOST_MARKS // 2
    for number, tokens, gap_s in zip(marked, pace.tokens, pace.gaps_s, strict=True):
        seconds, choices = steps[number]
        assert tokens == sum(sum(before) for _, before in steps[:number]) + choices[0]
        assert gap_s == (seconds / choices[0] if number else 0.0)
