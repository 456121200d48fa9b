"""An engine that dies while it answers: the alert that says so, from a real worker to a real Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.rules_prometheus import PATIENCE_S, RulesPrometheus
from tests.e2e.engines import TRTLLM, Served
from tests.e2e.stacks import Reader, Stack
from tests.e2e.waiting import wait_until
from tests.e2e.word_model import write_word_model
from tests.faults.striking import kill_engine

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

DIED = "DynamoActorWorkerDied"


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """Two workers whose engines are processes of their own; the framework's own grace, as in production."""
    model = write_word_model(tmp_path / "model")
    environ = {"DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "5"}
    with Served(TRTLLM).stack(tmp_path / "stack", model, step_ms=50, workers=2, environ=environ) as running:
        yield running


def test_an_engine_that_dies_with_a_request_is_told(stack: Stack, tmp_path: Path) -> None:
    """By the worker whose engine it was, and by no other; the request goes on at the second one."""
    folder = tmp_path / "prometheus"
    folder.mkdir()
    with RulesPrometheus(folder, stack.workers) as prometheus:
        # Both have one: whichever worker is hit, a request is hit.
        options = {"max_tokens": 200, "ignore_eos": True}
        readers = [Reader(stack.client, stack.model(), "a b c", options).start() for _ in range(6)]
        for reader in readers:
            reader.wait_text(3)
        hit = next(worker for worker in stack.workers if worker.status()["live"])
        wait_until(lambda: len(prometheus.value("dynamo_actor_build_info")) == 2, "not scraped", PATIENCE_S)
        kill_engine(hit)
        wait_until(lambda: prometheus.alert_states(DIED) == {"firing"}, prometheus.alerts, PATIENCE_S)
        instances = {
            alert["labels"]["instance"]
            for alert in prometheus.alerts()
            if alert["labels"]["alertname"] == DIED
        }
        assert instances == {f"127.0.0.1:{hit.port}"}
        assert hit.child.wait(PATIENCE_S) == 70
