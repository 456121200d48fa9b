"""A system port that somebody else has, before a worker starts and in its last moment before it binds it."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path

import pytest

from service.exit_codes import ExitCode
from tests.e2e.engines import Served
from tests.e2e.stacks import READY_S, Worker
from tests.e2e.waiting import wait_log, wait_until
from tests.faults.moments import Gate, moment_stack, starting

pytestmark = [pytest.mark.e2e, pytest.mark.each_engine, pytest.mark.timeout(180)]


def assert_refused(worker: Worker, port: int) -> None:
    """With its code, the address, and what nobody would have had."""
    assert worker.child.wait(60) == ExitCode.UNAVAILABLE
    log = worker.log()
    assert f"dynamo-actor-worker: system port: 127.0.0.1:{port} (DYN_SYSTEM_HOST, DYN_SYSTEM_PORT) " in log
    assert (
        "Address already in use; this worker would have neither health nor metrics nor control routes" in log
    )
    assert "worker.ready" not in log


def test_a_worker_whose_system_port_is_taken_ends_before_it_looks_for_a_model(
    served: Served, word_model: Path, tmp_path: Path
) -> None:
    """The framework would serve on, with another worker's health, metrics and drain in its place."""
    stack = served.stack(tmp_path / "stack", word_model, step_ms=10, has_frontend=False)
    first = stack.workers[0]
    with starting(stack):
        wait_until(first.is_healthy, first.log, READY_S)
        late = stack.add_worker(environ={"DYN_SYSTEM_PORT": str(first.port)})
        assert_refused(late, first.port)
        assert "model.load" not in late.log()
        assert first.is_healthy()


def test_a_port_that_is_lost_while_a_model_is_looked_for_ends_the_start(
    served: Served, word_model: Path, tmp_path: Path
) -> None:
    """Of two workers that start in one moment both find it free; the framework says one line and goes on."""
    gate = Gate.in_folder(tmp_path)
    with starting(moment_stack(served, tmp_path, word_model, "model", gate, has_frontend=False)) as worker:
        wait_log(worker, "at model")
        with closing(socket.create_server(("127.0.0.1", worker.port))):
            gate.open()
            assert_refused(worker, worker.port)
