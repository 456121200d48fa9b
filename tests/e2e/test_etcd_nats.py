"""The same worker where production finds it: discovery in a real etcd, requests over a real NATS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.demo.processes import free_port
from tests.e2e.engines import Served
from tests.e2e.servers import Servers
from tests.e2e.stacks import Reader
from tests.e2e.waiting import wait_log
from tests.e2e.word_model import word_of

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The variables that point the framework at a real etcd and a real NATS."""
    with Servers(tmp_path) as both:
        yield both.environ


@pytest.mark.parametrize("plane", ["tcp", "nats"])
def test_the_worker_serves_and_drains_with_etcd_and_nats(
    served: Served, servers: dict[str, str], word_model: Path, tmp_path: Path, plane: str
) -> None:
    """Found through etcd, asked over either request plane, drained without losing the answer."""
    folder = tmp_path / "stack"
    with served.stack(
        folder, word_model, step_ms=10, environ=servers, discovery="etcd", plane=plane
    ) as stack:
        status, body = stack.chat("w5", max_tokens=5)
        assert status == 200
        assert body["choices"][0]["message"]["content"].split() == [word_of(i) for i in range(1000, 1005)]
        reader = Reader(stack.client, stack.model(), "w5", {"max_tokens": 150}).start()
        reader.wait_text(5)
        stack.workers[0].child.ask_to_stop()
        reader.finish()
        assert reader.error is None
        assert len(reader.text.split()) == 150
        assert stack.workers[0].child.wait(20) == 0


def test_a_signal_while_etcd_is_not_there_ends_the_start_with_code_0(
    served: Served, word_model: Path, tmp_path: Path
) -> None:
    """The framework waits two minutes for its store; nobody who asks the worker to stop has to."""
    nowhere = f"http://127.0.0.1:{free_port()}"
    environ = {"ETCD_ENDPOINTS": nowhere}
    stack = served.stack(
        tmp_path / "stack", word_model, environ=environ, discovery="etcd", has_frontend=False
    )
    try:
        worker = stack.workers[0]
        wait_log(worker, "etcd not reachable yet")
        worker.child.ask_to_stop()
        assert worker.child.wait(10) == 0
    finally:
        stack.stop()
