"""Real signals to real worker processes, with requests in hand."""

from __future__ import annotations

import json
import re
import signal
import time

import pytest

from tests.compat.expected import expected
from tests.e2e.conftest import StackFactory
from tests.e2e.stacks import Reader
from tests.e2e.waiting import wait_log, wait_until
from tests.e2e.word_model import word_of

pytestmark = [pytest.mark.e2e, pytest.mark.each_engine, pytest.mark.timeout(180)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_loses_no_request_running_or_waiting(
    new_stack: StackFactory, number: signal.Signals
) -> None:
    """Two slots, six requests: the running and the waiting all end with all their tokens, exit 0."""
    stack = new_stack("--max-num-seqs", "2", "--engine-queue", "0", step_ms=10)
    worker = stack.workers[0]
    readers = [Reader(stack.client, stack.model(), "w5", {"max_tokens": 60}).start() for _ in range(6)]

    def are_all_there() -> bool:
        state = worker.status()
        return bool(state["live"] == 6 and state["in_flight"] == 2)

    wait_until(are_all_there, lambda: str([worker.status(), *(reader.error for reader in readers)]), 10)
    worker.send(number)
    for reader in readers:
        reader.finish()
        assert reader.error is None
        assert reader.text.split() == [word_of(i) for i in range(1000, 1060)]
        assert reader.reason == "length"
    assert worker.child.wait(20) == 0


def test_a_worker_with_many_requests_in_flight_ends_soon_after_the_last(new_stack: StackFactory) -> None:
    """256 streams in flight at the signal: none lost, exit 0."""
    stack = new_stack("--max-num-seqs", "256", "--drain-timeout", "100", step_ms=20)
    worker = stack.workers[0]
    model = stack.model()
    readers = []
    for _ in range(8):
        # In waves: the framework's own sockets refuse some of 256 streams that begin in one instant.
        wave = [Reader(stack.client, model, "w5", {"max_tokens": 600}).start() for _ in range(32)]
        for reader in wave:
            reader.wait_text(1)
        readers += wave
    worker.wait_status(lambda state: state["in_flight"] == 256, timeout_s=60)
    worker.send(signal.SIGTERM)
    lost = [reader.error for reader in readers if reader.finish().reason != "length"]
    last_s = time.monotonic()
    assert lost == []
    assert worker.child.wait(20) == 0
    print(f"exit {time.monotonic() - last_s:.2f} s after the last answer")


def test_requests_that_outlive_the_budget_move_to_another_worker(new_stack: StackFactory) -> None:
    """At 70 % of a short budget requests that can move do; the other worker finishes them."""
    stack = new_stack("--drain-timeout", "3", step_ms=20, workers=2)
    readers = [Reader(stack.client, stack.model(), "w5", {"max_tokens": 400}).start() for _ in range(8)]
    for reader in readers:
        reader.wait_text(10)
    first, second = stack.workers
    held = first.status()["in_flight"]
    assert held > 0
    first.send(signal.SIGTERM)
    for reader in readers:
        reader.finish()
        assert reader.error is None
        assert reader.reason == "length"
        assert sum(1 for _ in reader.text.split()) == 400
    assert first.child.wait(20) == 0
    assert second.status()["outcomes"]["completed"] == 8


def test_a_second_signal_ends_the_wait(new_stack: StackFactory) -> None:
    """The operator asked twice: requests end with an error, the process with code 70."""
    stack = new_stack(step_ms=50)
    worker = stack.workers[0]
    reader = Reader(stack.client, stack.model(), "w5", {"max_tokens": 1500}).start()
    reader.wait_text(3)
    worker.send(signal.SIGTERM)
    # Not through a route: later frameworks answer none of them once a signal has come.
    wait_log(worker, "state=draining")
    worker.send(signal.SIGTERM)
    assert worker.child.wait(20) == 70
    assert reader.finish().error is not None


def test_a_signal_while_the_worker_is_idle_ends_it_with_code_0(new_stack: StackFactory) -> None:
    """Nothing in hand: the grace period, then gone. The log says when it was found, and how it ended."""
    stack = new_stack()
    worker = stack.workers[0]
    assert len(re.findall(r"worker\.ready seconds=[0-9.]+", worker.log())) == 1
    worker.send(signal.SIGTERM)
    assert worker.child.wait(20) == 0
    assert re.search(r"worker\.ended code=0 seconds=[0-9.]+\s*$", worker.log())


def test_a_drain_by_hand_can_be_taken_back(new_stack: StackFactory) -> None:
    """Drain: safe to delete, out of routing. Resume: serving again."""
    stack = new_stack()
    worker = stack.workers[0]
    drained = worker.control("drain", {"timeout_s": 5})
    assert drained["safe_to_delete"] is True
    assert drained["state"] == "drained"
    resumed = worker.control("resume")
    assert resumed["state"] == "serving"
    stack.wait_ready()
    wait_until(lambda: stack.chat("w5", max_tokens=3)[0] == 200, "no answer after the drain", 15)


def test_health_and_routes_while_stopping_are_the_frameworks(new_stack: StackFactory) -> None:
    """What probes and operators get between the signal and the end; a scrape still works."""
    stack = new_stack(step_ms=20)
    worker = stack.workers[0]
    reader = Reader(stack.client, stack.model(), "w5", {"max_tokens": 150}).start()
    reader.wait_text(3)
    worker.send(signal.SIGTERM)
    wait_log(worker, "state=draining")
    assert worker.system.get("/health")[0] == expected().healthy_while_stopping
    status, page = worker.system.get("/metrics")
    assert status == 200
    assert re.search(r'dynamo_actor_worker_state\{[^}]*state="draining"[^}]*\} 1.0', page)
    answer = json.loads(worker.system.post("/engine/control/status", {})[1])
    assert ("live" in answer) is expected().answers_while_stopping
    assert reader.finish().error is None
    assert worker.child.wait(20) == 0
