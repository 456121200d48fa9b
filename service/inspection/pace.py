"""When the tokens of one life came steadily, and when they did not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

from service.inspection.story import Mark

# Of the median gap between two marks: a step among others may take twice its time without being a stall.
_STEADY = 2.0


def steady_stretches(marks: Sequence[Mark], end_ms: float) -> Iterator[tuple[float, float]]:
    """From when to when, in milliseconds from the arrival, tokens kept coming. end_ms: when they ended.

    Marks are thinned: of a long answer each stands for many steps, the last of which are in none. So between
    two of them nothing is known but whether they are as close as the others.
    """
    times = [mark.at_ms for mark in marks]
    if len(times) < 2:
        return
    usual_ms = median(after - before for before, after in pairwise(times))
    for before, after in pairwise((*times, end_ms)):
        if after - before <= _STEADY * usual_ms:
            yield before, after
