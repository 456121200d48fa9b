"""What clients see of our errors: the table of docs/limits.md, as the installed frontend really answers.

Versions of the framework differ; `tests.compat.expected` says how.
"""

from __future__ import annotations

import http.client
import json
from typing import Any

import pytest

from tests.compat.expected import expected
from tests.e2e.conftest import StackFactory
from tests.e2e.stacks import Reader, Stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

WRONG = {"guided_regex": "[a-z]+", "max_tokens": 3}


def test_a_refused_chat_request_is_a_400_that_names_the_field(shared_stack: Stack) -> None:
    """Chat, unary: our code and our text."""
    status, body = shared_stack.chat("w5", **WRONG)
    assert status == 400
    assert "sampling_options.guided_decoding" in json.dumps(body)


def test_a_refused_completion_is_what_the_frontend_makes_of_it(shared_stack: Stack) -> None:
    """Completions, unary: ai-dynamo 1.4.2 hides code and text behind a 500, later versions show a 400."""
    body = {"model": shared_stack.model(), "prompt": "w5", **WRONG}
    status, _ = shared_stack.client.post("/v1/completions", body)
    assert status == expected().refused_completion


def test_a_refused_stream_ends_with_an_error_event(shared_stack: Stack) -> None:
    """A stream never just stops: HTTP 200, one error event, and our books say refused."""
    worker = shared_stack.workers[0]
    before = worker.status()["outcomes"]["refused"]
    assert error_code(shared_stack, WRONG) == expected().refused_event
    assert worker.status()["outcomes"]["refused"] == before + 1


def test_refused_values_are_in_no_log_of_the_worker(shared_stack: Stack) -> None:
    """What a caller wrote goes back to him and nowhere else."""
    shared_stack.chat("w5", guided_regex="secretpattern", max_tokens=3)
    assert "secretpattern" not in shared_stack.workers[0].log()


@pytest.mark.parametrize("is_streamed", [False, True], ids=["unary", "stream"])
def test_a_passed_deadline_is_its_own_requests_matter(shared_stack: Stack, is_streamed: bool) -> None:
    """Its client gets the error; the worker stays in routing and answers the next one at once."""
    headers = {"x-dynamo-meta-deadline-ms": "150"}
    status, text = ask(shared_stack, {"max_tokens": 500, "stream": is_streamed}, headers)
    if is_streamed:
        assert (status, code_in(text)) == (200, expected().deadline_event)
    else:
        # The second, if a busy machine had not made the first token by then.
        assert status in {expected().deadline_unary, expected().deadline}
    assert shared_stack.chat("w5", max_tokens=3)[0] == 200


@pytest.mark.parametrize("is_streamed", [False, True], ids=["unary", "stream"])
def test_an_overloaded_worker_says_so_and_stays_in_routing(
    new_stack: StackFactory, is_streamed: bool
) -> None:
    """Full: 429 with a hint, for every request that comes; the one that runs is not disturbed."""
    stack = new_stack("--max-live", "1").wait_ready()
    running = Reader(stack.client, stack.model(), "w5", {"max_tokens": 150}).start()
    running.wait_text(3)
    for _ in range(3):
        status, text = ask(stack, {"max_tokens": 3, "stream": is_streamed})
        if is_streamed:
            assert (status, code_in(text)) == (200, expected().overloaded_event)
        else:
            assert status == 429
    assert running.finish().error is None
    assert len(running.text.split()) == 150
    assert stack.chat("w5", max_tokens=3)[0] == 200


def ask(stack: Stack, options: dict[str, Any], headers: dict[str, str] | None = None) -> tuple[int, str]:
    """A chat request with headers of its own; status and body."""
    body = {"model": stack.model(), "messages": [{"role": "user", "content": "w5"}], **options}
    connection = http.client.HTTPConnection("127.0.0.1", stack.http_port, timeout=60)
    try:
        connection.request(
            "POST",
            "/v1/chat/completions",
            json.dumps(body),
            {"Content-Type": "application/json", **(headers or {})},
        )
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def code_in(text: str) -> int | None:
    """The code of the error event of a stream; None when there is none."""
    for line in text.splitlines():
        if line.startswith("data: {") and "error" in (event := json.loads(line.removeprefix("data: "))):
            code: int = event["error"]["code"]
            return code
    return None


def error_code(stack: Stack, options: dict[str, Any]) -> int | None:
    """What a streamed chat request with these options is told."""
    status, text = ask(stack, {"stream": True, **options})
    assert status == 200
    return code_in(text)
