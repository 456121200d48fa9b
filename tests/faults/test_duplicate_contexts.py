"""Row 21: callers that give many requests one and the same id."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.waiting import wait_until
from tests.faults.load import Kind, Load

if TYPE_CHECKING:
    from tests.faults.conftest import StackFactory
    from tests.faults.figures import Figures

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

REQUESTS = 128
SAME_ID = "6f0f6f2e-2d0c-4a53-9b52-6a1c0c8d9e01"


def test_requests_with_the_same_request_id_do_not_hear_each_other(
    new_stack: StackFactory, figures: Figures
) -> None:
    """Each of another length, some leave in the middle: whoever stays gets all of his own tokens."""
    stack = new_stack("--max-num-seqs", "64", step_ms=10)
    worker = stack.workers[0]
    with Load(stack.http_port, stack.model(), headers={"x-request-id": SAME_ID}) as load:
        staying = [load.start(Kind.PLAIN, 1, max_tokens=20 + length)[0] for length in range(REQUESTS)]
        leaving = load.start(Kind.PLAIN, 16, max_tokens=1500)
        load.wait_tokens(3)
        load.hang_up(leaving)
        load.finish()
    crossed = [str(answer) for answer in staying if not answer.is_complete]
    assert crossed == []
    state = worker.wait_status(lambda status: status["live"] == 0)
    assert state["outcomes"]["cancelled"] == len(leaving)
    figures.record(
        row=21,
        what=f"{REQUESTS} requests with one x-request-id, 16 more of them leave: not whole",
        value=str(len(crossed)),
        goal="0",
    )


def test_what_the_framework_cannot_tell_apart_does_not_hurt_the_worker(
    new_stack: StackFactory, figures: Figures
) -> None:
    """Its own id, given by the caller: its transport refuses most and now and then exchanges two; it passes.

    No answer is cut short or mixed: it is an error, or the whole answer of one of those with the same id.
    """
    stack = new_stack("--max-num-seqs", "64", step_ms=10)
    worker = stack.workers[0]
    with Load(stack.http_port, stack.model(), headers={"x-dynamo-request-id": SAME_ID}) as load:
        for length in range(REQUESTS):
            load.start(Kind.PLAIN, 1, max_tokens=20 + length)
        answers = load.finish()
    served = [answer for answer in answers if not answer.is_error]
    assert [str(answer) for answer in served if not (answer.is_exact and answer.reasons == ["length"])] == []
    said = [len(words) for answer in served for words in answer.words]
    assert set(said) <= set(range(20, 20 + REQUESTS))
    assert len(set(said)) == len(said) == len(served), "one answer was given twice"
    state = worker.wait_status(lambda status: status["live"] == 0 and status["in_flight"] == 0)
    assert state["started"] == sum(state["outcomes"].values())
    assert state["state"] == "serving"
    # The frontend leaves a worker alone for some seconds whose transport it saw fail.
    wait_until(
        lambda: stack.client.models() and stack.chat("w5", max_tokens=2)[0] == 200,
        "the frontend does not come back to the worker",
        every_s=0.1,
    )
    figures.record(
        row=21,
        what=f"{REQUESTS} at once, one Dynamo id: cut or mixed; exchanged, refused by the framework",
        value=f"0; {sum(not each.is_complete for each in served)}, {len(answers) - len(served)}",
        goal="0; its own",
    )
