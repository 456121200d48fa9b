"""More requests than places, through the real frontend."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.conftest import StackFactory
from tests.e2e.stacks import Reader, hang_up

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


def test_a_full_worker_refuses_at_once_and_serves_whom_it_took(new_stack: StackFactory) -> None:
    """Two run, one waits, two are told 429 with a retry hint, counted by reason; a free place is used."""
    stack = new_stack("--max-num-seqs", "2", "--engine-queue", "0", "--max-live", "3", step_ms=20)
    worker, model = stack.workers[0], stack.model()
    readers = [Reader(stack.client, model, "w5", {"max_tokens": 150}).start() for _ in range(3)]
    worker.wait_status(lambda state: state["live"] == 3 and state["in_flight"] == 2 and state["waiting"] == 1)
    with ThreadPoolExecutor(2) as pool:
        refused = list(pool.map(lambda _: stack.chat("w5", max_tokens=3), range(2)))
    for status, body in refused:
        assert status == 429, body
        assert "retry after" in str(body)
    for reader in readers:
        assert reader.finish().reason == "length"
        assert len(reader.text.split()) == 150
    assert stack.chat("w5", max_tokens=3)[0] == 200
    state = worker.wait_status(lambda status: status["live"] == 0)
    metrics = worker.system.get("/metrics")[1]
    assert re.search(r'^dynamo_actor_rejected_total\{.*reason="max_live".*\} 2\.0$', metrics, re.MULTILINE)
    assert state["outcomes"] == {**dict.fromkeys(state["outcomes"], 0), "completed": 4, "refused": 2}


def test_a_place_freed_by_a_cancel_goes_to_the_next_in_line(new_stack: StackFactory) -> None:
    """The one that waits starts when a running one's client hangs up."""
    stack = new_stack("--max-num-seqs", "1", "--engine-queue", "0", step_ms=20)
    worker, model = stack.workers[0], stack.model()
    with ThreadPoolExecutor(1) as pool:
        leaving = pool.submit(hang_up, stack.http_port, model, "w5", 3000, max_tokens=2000)
        worker.wait_status(lambda state: state["in_flight"] == 1)
        reader = Reader(stack.client, model, "w5", {"max_tokens": 20}).start()
        worker.wait_status(lambda state: state["waiting"] == 1)
        leaving.result(60)
    assert reader.finish().reason == "length"
    assert worker.status()["outcomes"]["cancelled"] == 1
