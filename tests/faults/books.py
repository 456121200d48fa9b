"""What clients saw beside what workers wrote of each of their requests, when one of the workers ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.compat.expected import expected
from tests.e2e.request_lines import request_lines, trace_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.faults.load import Answer

_ENDED_EARLY = frozenset({"interrupted", "failed"})
# What a worker says of a request that goes on at another one; refused: it came when admission was closed.
_HANDED_ON = frozenset({"interrupted", "refused"})
# The same where the frontend went by itself.
_LEFT = frozenset({"cancelled"})


def misbooked(answers: Iterable[Answer], ended: str, others: Sequence[str]) -> list[str]:
    """Answers that the lines ``request.ended`` do not bear out, in words.

    ended, others: the whole logs of the worker that ended, and of those that did not; all of them `TRACED`.
    Told of an error: one line in all, interrupted or failed, at the worker that ended. Complete: one line
    completed, whoever wrote it; another one only of a request that can move, handed on by the one that ended.
    """
    at_ended = _outcomes(ended)
    at_others = [_outcomes(log) for log in others]
    flaws: list[str] = []
    for answer in answers:
        assert answer.number is not None
        trace = trace_id(answer.number)
        here = at_ended.get(trace, [])
        elsewhere = [outcome for found in at_others for outcome in found.get(trace, [])]
        if not (_tells_error(here, elsewhere) if answer.is_error else _is_whole(answer, here, elsewhere)):
            flaws.append(f"{answer}: {here} where it ended, {elsewhere} elsewhere")
    return flaws


def handed_on(answers: Iterable[Answer], ended: str) -> int:
    """How many of the complete ones the worker that ended has handed on."""
    outcomes = _outcomes(ended)
    return sum(
        bool(_HANDED_ON.intersection(outcomes.get(trace_id(answer.number), [])))
        for answer in answers
        if answer.number is not None and answer.is_complete
    )


def _outcomes(log: str) -> dict[str, list[str]]:
    return {
        trace: [line["outcome"] for line in lines] for trace, lines in request_lines(log.splitlines()).items()
    }


def _tells_error(here: list[str], elsewhere: list[str]) -> bool:
    return not elsewhere and len(here) == 1 and here[0] in _ENDED_EARLY


def _is_whole(answer: Answer, here: list[str], elsewhere: list[str]) -> bool:
    if not elsewhere:
        return here == ["completed"]
    gone = _HANDED_ON | _LEFT if expected().leaves_by_itself else _HANDED_ON
    is_handed_on = not here or (answer.kind.is_movable and gone.issuperset(here))
    return elsewhere == ["completed"] and is_handed_on
