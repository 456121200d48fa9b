"""The judge of the books: what a client saw must be what one of the workers wrote of its request."""

from __future__ import annotations

import json

import pytest

from actors.engines.synthetic import FIRST_TOKEN_ID
from tests.e2e.request_lines import trace_id
from tests.e2e.word_model import word_of
from tests.faults.books import handed_on, misbooked
from tests.faults.load import Answer, Kind


def log_of(*outcomes: str) -> str:
    """Of one worker; every line is about request 1."""
    message, trace = "request.ended", trace_id(1)
    fields = ({"message": message, "outcome": outcome, "trace_id": trace} for outcome in outcomes)
    return "\n".join(json.dumps({"message": json.dumps(each)}) for each in fields)


def complete(kind: Kind = Kind.UNARY) -> Answer:
    answer = Answer(kind, 1, None, 1, ended_s=1.0, status=200)
    choice = {"index": 0, "finish_reason": "length"}
    said = {"content": word_of(FIRST_TOKEN_ID)}
    body: dict[str, object] = {"choices": [{**choice, "message": said}]}
    if kind is Kind.UNARY:
        answer.add(json.dumps(body).encode())
    else:
        answer.add(f"data: {json.dumps({'choices': [{**choice, 'delta': said}]})}\n\n".encode())
    assert answer.is_complete
    return answer


def told() -> Answer:
    return Answer(Kind.GUIDED, 1, None, 1, ended_s=1.0, failure="an error")


@pytest.mark.parametrize(
    ("answer", "ended", "others"),
    [
        (told(), log_of("interrupted"), ["", ""]),
        (told(), log_of("failed"), [""]),
        (complete(), log_of("completed"), [""]),
        (complete(), log_of(), ["", log_of("completed")]),
        (complete(), log_of("interrupted"), [log_of("completed")]),
        (complete(), log_of("refused"), [log_of("completed")]),
        (complete(), log_of("refused", "interrupted"), [log_of("completed")]),
        (complete(Kind.GUIDED), log_of("completed"), [""]),
    ],
)
def test_books_that_fit_have_no_flaw(answer: Answer, ended: str, others: list[str]) -> None:
    """Told and ended early, or complete and completed, here or where it went."""
    assert misbooked([answer], ended, others) == []


@pytest.mark.parametrize(
    ("answer", "ended", "others"),
    [
        (told(), "", [""]),
        (told(), log_of("completed"), [""]),
        (told(), log_of("refused"), [""]),
        (told(), log_of("interrupted", "interrupted"), [""]),
        (told(), log_of("interrupted"), [log_of("completed")]),
        (told(), "", [log_of("interrupted")]),
        (complete(), "", [""]),
        (complete(), log_of("interrupted"), [""]),
        (complete(), log_of("completed"), [log_of("completed")]),
        (complete(), log_of("failed"), [log_of("completed")]),
        (complete(), log_of("completed"), [log_of("failed")]),
        (complete(Kind.GUIDED), log_of("interrupted"), [log_of("completed")]),
    ],
)
def test_books_that_do_not_fit_are_a_flaw(answer: Answer, ended: str, others: list[str]) -> None:
    """A line that is missing, twice, at the wrong worker, or that says something else than the client."""
    assert len(misbooked([answer], ended, others)) == 1


def test_what_went_on_elsewhere_is_counted() -> None:
    """Only what was complete in the end."""
    assert handed_on([complete(), told()], log_of("interrupted")) == 1
