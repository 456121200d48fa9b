"""The line of a request behind a real frontend: whoever has one of its ids finds it, and the others in it."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.request_lines import TRACED, request_lines, trace_header, trace_id
from tests.e2e.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.conftest import StackFactory
    from tests.e2e.stacks import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

CALLERS_ID = "gateway-7f3a"


def ask(stack: Stack) -> dict[str, Any]:
    """One unary answer of 20 tokens, asked for with a trace and an id of the caller's."""
    body = {"model": stack.model(), "messages": [{"role": "user", "content": "w5"}], "max_tokens": 20}
    headers = {"Content-Type": "application/json", "x-request-id": CALLERS_ID, **trace_header(1)}
    connection = http.client.HTTPConnection("127.0.0.1", stack.http_port, timeout=60)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        response = connection.getresponse()
        assert response.status == 200
        answer: dict[str, Any] = json.loads(response.read())
        return answer
    finally:
        connection.close()


def frameworks_lines(log: str) -> Iterator[dict[str, Any]]:
    """Those of the request that are not ours."""
    for line in log.splitlines():
        if line.startswith("{") and (entry := json.loads(line)).get("trace_id") == trace_id(1):
            yield entry


def test_one_line_has_every_id_and_what_the_client_was_told(new_stack: StackFactory) -> None:
    """Trace and span are the framework's own, the figures those of the answer."""
    stack = new_stack(environ=TRACED, step_ms=5)
    worker = stack.workers[0]
    usage = ask(stack)["usage"]
    wait_until(lambda: request_lines(worker.log().splitlines()), worker.log, 10)
    ((_, (line,)),) = request_lines(worker.log().splitlines()).items()
    assert line["trace_id"] == trace_id(1)
    assert line["x_request_id"] == CALLERS_ID
    assert line["is_sampled"] is True
    assert (line["outcome"], line["finish_reason"], line["n"]) == ("completed", "length", 1)
    assert line["prompt_tokens"] == usage["prompt_tokens"]
    assert line["completion_tokens"] == usage["completion_tokens"] == 20
    assert 0 < line["queue_s"] < line["ttft_s"] < line["request_s"]
    assert 0.002 < line["itl_p50_s"] < 0.05
    theirs = list(frameworks_lines(worker.log()))
    assert {(entry["request_id"], entry["x_request_id"]) for entry in theirs} == {
        (line["context_id"], CALLERS_ID)
    }
