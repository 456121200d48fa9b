"""Sleep and wake of a real worker behind a real frontend, with the framework's canary on."""

from __future__ import annotations

import signal
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.e2e.health_watch import HealthWatch
from tests.e2e.waiting import wait_until

if TYPE_CHECKING:
    from tests.e2e.conftest import StackFactory
    from tests.e2e.stacks import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

PROGRAM = (sys.executable, "-m", "tests.doubles.sleeping_worker")
CANARY = {"DYN_HEALTH_CHECK_ENABLED": "true", "DYN_CANARY_WAIT_TIME": "1"}
# Several canaries, of which one that fails makes the worker unhealthy.
ASLEEP_S = 5.0


def answers(stack: Stack) -> bool:
    """Whether a request gets through."""
    models = stack.client.models()
    body = {"prompt": "w5", "max_tokens": 2}
    return bool(models) and stack.client.post("/v1/completions", {"model": models[0], **body})[0] == 200


@pytest.mark.parametrize(("out", "back"), [("fall_asleep", "wake"), ("drain", "resume")])
def test_a_worker_out_of_service_is_healthy_and_serves_again(
    new_stack: StackFactory, out: str, back: str
) -> None:
    """No request reaches it, its health says 200 all the while, and then all is as before."""
    stack = new_stack(program=PROGRAM, environ=CANARY)
    (worker,) = stack.workers
    assert answers(stack)
    with HealthWatch(worker) as health:
        assert worker.control(out)["state"] == "drained"
        wait_until(lambda: not answers(stack), "the frontend goes on asking", 20.0)
        time.sleep(ASLEEP_S)
        assert worker.status()["asleep"] == (["kv_cache"] if out == "fall_asleep" else [])
        assert worker.control(back)["state"] == "serving"
        wait_until(lambda: answers(stack), "no way back", 20.0)
    assert health.bad == []
    assert health.polls > ASLEEP_S


def test_a_signal_in_its_sleep_ends_a_worker_in_order(new_stack: StackFactory) -> None:
    """Code 0, as of any other."""
    stack = new_stack(program=PROGRAM)
    (worker,) = stack.workers
    worker.control("fall_asleep")
    worker.send(signal.SIGTERM)
    assert worker.child.wait(30) == 0


def test_upstreams_routes_leave_no_worker_unseen(new_stack: StackFactory) -> None:
    """The framework leaves and joins discovery around them: a refusal does not stay out, a drain stays so."""
    stack = new_stack(program=PROGRAM)
    (worker,) = stack.workers
    refused = worker.control("release_memory_occupation", {"tags": ["nonsense"]})
    assert refused["status"] == "error"
    wait_until(lambda: answers(stack), "lost for a refusal", 20.0)
    assert worker.control("release_memory_occupation")["status"] == "ok"
    assert worker.status()["in_discovery"] is False
    wait_until(lambda: not answers(stack), "the frontend goes on asking", 20.0)
    assert worker.control("fall_asleep", {"memories": ["model"]})["memory"] == "asleep"
    assert worker.control("resume_memory_occupation")["status"] == "ok"
    wait_until(lambda: answers(stack), "no way back", 20.0)
    assert worker.control("drain")["safe_to_delete"] is True
    assert worker.control("resume_memory_occupation")["status"] == "error"
    assert (worker.status()["state"], answers(stack)) == ("drained", False)
