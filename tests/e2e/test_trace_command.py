"""``trace`` across workers, with a real frontend that moves a request in the middle of its answer."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.request_lines import TRACED
from tests.e2e.stacks import Reader, Stack
from tests.e2e.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.conftest import StackFactory

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(90)]

TOKENS = 150


def _trace(stack: Stack, *words: str) -> str:
    """What the console script says of all workers."""
    urls = [part for worker in stack.workers for part in ("--url", f"http://127.0.0.1:{worker.port}")]
    ran = subprocess.run(
        [sys.executable, "-m", "service", "trace", *words, *urls],
        env={"PATH": os.environ["PATH"], "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        check=True,
        timeout=30,
    )
    return ran.stdout.decode()


def test_a_moved_request_is_one_request_with_two_lives(new_stack: StackFactory, tmp_path: Path) -> None:
    """Both workers are asked; lives, tokens and times fit together, in the terminal and on the page too."""
    stack = new_stack(workers=2, frontend_options=("--migration-limit", "3"))
    reader = Reader(stack.client, stack.model(), "one two three", {"max_tokens": TOKENS, "ignore_eos": True})
    reader.start().wait_text(5)
    (first,) = [worker for worker in stack.workers if worker.status()["live"]]
    first.control("drain", {"timeout_s": 0.2})
    reader.finish()
    (second,) = [worker for worker in stack.workers if worker is not first]
    wait_until(lambda: second.status()["live"] == 0, "the second life does not end", 10)

    told: dict[str, Any] = json.loads(_trace(stack, "--json"))
    (request,) = told["requests"]
    before, after = request["lives"]
    ports = [worker.port for worker in stack.workers]
    assert ports[before["worker"]] == first.port
    assert ports[after["worker"]] == second.port
    assert [(life["outcome"], life["is_moved"]) for life in (before, after)] == [
        ("interrupted", True),
        ("completed", False),
    ]
    assert request["completion_tokens"] == TOKENS
    assert before["completion_tokens"] > 0
    assert after["prompt_tokens"] == before["prompt_tokens"] + before["completion_tokens"]
    # One machine, one clock: the frontend hears of the end, and then asks the other worker.
    assert after["gap_ms"] is not None
    assert request["duration_ms"] == pytest.approx(
        before["duration_ms"] + after["gap_ms"] + after["duration_ms"], abs=0.01
    )
    assert "in 2 lives" in _trace(stack, before["context_id"]).splitlines()[0]
    page = tmp_path / "trace.html"
    assert _trace(stack, "--html", str(page)) == f"1 request in {page}\n"
    assert before["context_id"] in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("chat/completions", {"messages": [{"role": "user", "content": "one two"}]}),
        ("completions", {"prompt": "one two"}),
    ],
)
def test_a_client_finds_its_request_by_the_ids_that_it_has(
    new_stack: StackFactory, path: str, asked: dict[str, Any]
) -> None:
    """The id of the answer that it got, and the one that it sent."""
    stack = new_stack(environ=TRACED)
    connection = http.client.HTTPConnection("127.0.0.1", stack.http_port, timeout=60)
    headers = {"Content-Type": "application/json", "x-request-id": "gateway-1"}
    body = {"model": stack.model(), "max_tokens": 4, **asked}
    connection.request("POST", f"/v1/{path}", json.dumps(body), headers)
    answer_id = json.loads(connection.getresponse().read())["id"]
    connection.close()
    for wanted in (answer_id, "gateway-1"):
        (request,) = json.loads(_trace(stack, wanted, "--json"))["requests"]
        (life,) = request["lives"]
        assert answer_id.endswith(life["context_id"])
        assert life["x_request_id"] == "gateway-1"
