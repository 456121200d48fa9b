"""A real worker whose last request is lost: Prometheus gets to know of it."""

from __future__ import annotations

import re
import signal

import pytest

from tests.e2e.conftest import StackFactory
from tests.e2e.stacks import Reader
from tests.e2e.waiting import wait_log

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

INTERRUPTED = re.compile(
    r'^dynamo_actor_requests_total\{[^}]*outcome="interrupted"[^}]*\} (\S+)$', re.MULTILINE
)
LEFT = re.compile(r"worker\.waiting_to_be_scraped.*left_s=(\S+)")
# TensorRT-LLM refuses two choices that nothing tells apart.
TWO_CHOICES = {"max_tokens": 400, "n": 2, "temperature": 0.8, "seed": 7, "ignore_eos": True}
# Far more than a scrape takes here: the drain ends soon after its last answer.
LEAST_LEFT_S = 3.0


def test_a_request_that_a_drain_loses_is_on_the_page_until_it_was_scraped(new_stack: StackFactory) -> None:
    """Two choices cannot be moved. The engine has ended; one scrape lets the worker go, with code 0."""
    stack = new_stack("--drain-timeout", "1", step_ms=20)
    worker = stack.workers[0]
    reader = Reader(stack.client, stack.model(), "w5", TWO_CHOICES).start()
    reader.wait_text(10)
    worker.send(signal.SIGTERM)
    reader.finish()
    wait_log(worker, "worker.waiting_to_be_scraped")
    assert float(LEFT.findall(worker.log())[0]) > LEAST_LEFT_S
    status, page = worker.system.get("/metrics")
    assert status == 200
    assert INTERRUPTED.findall(page) == ["1.0"]
    assert worker.child.wait(20) == 0
