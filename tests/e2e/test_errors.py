"""What clients see of our errors: the table of docs/limits.md, as the installed frontend really answers."""

from __future__ import annotations

import json

import pytest

from tests.e2e.stacks import Reader, Stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

WRONG = {"guided_regex": "[a-z]+", "max_tokens": 3}


def test_a_refused_chat_request_is_a_400_that_names_the_field(shared_stack: Stack) -> None:
    """Chat, unary: our code and our text."""
    status, body = shared_stack.chat("w5", **WRONG)
    assert status == 400
    assert "sampling_options.guided_decoding" in json.dumps(body)


def test_a_refused_completion_is_a_500_of_the_frontends_own(shared_stack: Stack) -> None:
    """Completions, unary: ai-dynamo 1.4.2 hides code and text. If this fails, the table has become better."""
    body = {"model": shared_stack.model(), "prompt": "w5", **WRONG}
    status, _ = shared_stack.client.post("/v1/completions", body)
    assert status == 500


def test_a_refused_stream_ends_with_an_error_event(shared_stack: Stack) -> None:
    """A stream never just stops: HTTP 200, one error event, and our books say refused."""
    worker = shared_stack.workers[0]
    before = worker.status()["outcomes"]["refused"]
    reader = Reader(shared_stack.client, shared_stack.model(), "w5", WRONG).start().finish()
    assert reader.error is not None
    assert worker.status()["outcomes"]["refused"] == before + 1


def test_refused_values_are_in_no_log_of_the_worker(shared_stack: Stack) -> None:
    """What a caller wrote goes back to him and nowhere else."""
    shared_stack.chat("w5", guided_regex="secretpattern", max_tokens=3)
    assert "secretpattern" not in shared_stack.workers[0].log()
