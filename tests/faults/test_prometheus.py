"""A real Prometheus beside the worker: through a drain, the end of the process, and its successor."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from service.demo.client import Client
from service.demo.processes import Child, free_port
from tests.e2e.servers import tool, wait_listening
from tests.e2e.stacks import Stack, Worker
from tests.e2e.waiting import wait_until
from tests.faults.load import Kind, Load

if TYPE_CHECKING:
    from tests.faults.figures import Figures

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

STREAMS = 32
PATIENCE_S = 30.0
_RISING = "dynamo_actor_.+_(total|count|bucket)"
_EVERY = "1s"

Samples = list[tuple[float, float]]


class Prometheus:
    """Scrapes one address once a second, its shortest usual interval."""

    def __init__(self, folder: Path, target: int) -> None:
        folder.mkdir()
        port = free_port(frozenset({target}))
        target_of = {"job_name": "worker", "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}
        timing = {"scrape_interval": _EVERY, "scrape_timeout": _EVERY}
        config = folder / "prometheus.yml"
        # JSON is YAML.
        config.write_text(json.dumps({"global": timing, "scrape_configs": [target_of]}), encoding="utf-8")
        words = [
            tool("prometheus"),
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        self._child = Child("prometheus", words, {}, folder / "prometheus.log")
        self._client = Client(port)
        wait_listening(port)
        # It listens before it answers.
        wait_until(lambda: self._client.get("/-/ready")[0] == 200, "Prometheus is not ready", PATIENCE_S)

    def stop(self) -> None:
        """By its own pid."""
        self._child.ask_to_stop()
        self._child.wait(10)

    def series(self, selector: str) -> dict[str, Samples]:
        """Everything it knows of the last ten minutes: (unix seconds, value), by name and labels."""
        status, text = self._client.get(f"/api/v1/query?query={quote(selector + '[10m]')}")
        assert status == 200, text
        found: list[dict[str, Any]] = json.loads(text)["data"]["result"]
        return {
            json.dumps(one["metric"], sort_keys=True): [(at_s, float(value)) for at_s, value in one["values"]]
            for one in found
        }

    def up(self) -> list[float]:
        """Each scrape so far: 1 that worked, 0 that did not."""
        return [value for samples in self.series('up{job="worker"}').values() for _, value in samples]

    def wait(self, is_so: Any, what: str) -> None:
        """Until its scrapes have shown it."""
        wait_until(is_so, lambda: (what, completed(self), self.up()), PATIENCE_S, every_s=0.05)


@pytest.fixture
def stack(word_model: Path, tmp_path: Path) -> Iterator[Stack]:
    """A frontend and one worker."""
    options = ["--engine", "synthetic", "--model", str(word_model), "--synthetic-step-ms", "20"]
    with Stack(tmp_path / "stack", options) as one:
        yield one


@pytest.fixture
def prometheus(stack: Stack, tmp_path: Path) -> Iterator[Prometheus]:
    """It watches the address of the worker."""
    server = Prometheus(tmp_path / "prometheus", stack.workers[0].port)
    yield server
    server.stop()


def successor(stack: Stack) -> Worker:
    """A new worker at the old one's address, known to the frontend."""
    port = stack.workers.pop().port
    child = stack.add_worker(environ={"DYN_SYSTEM_PORT": str(port)}).child
    stack.workers.append(Worker(child, Client(port), port))
    return stack.wait_ready().workers[0]


def completed(prometheus: Prometheus) -> list[float]:
    """The last count of completed requests of each process, in the order of their starts."""
    found = prometheus.series('dynamo_actor_requests_total{outcome="completed"}').values()
    return [samples[-1][1] for samples in sorted(found)]


def test_prometheus_sees_every_request_and_no_counter_fall(
    stack: Stack, prometheus: Prometheus, figures: Figures
) -> None:
    """No scrape fails before the process is going; its counters only rise; its successor begins anew."""
    first = stack.workers[0]
    prometheus.wait(lambda: 1.0 in prometheus.up(), "no scrape works")
    with Load(stack.http_port, stack.model()) as load:
        load.start(Kind.PLAIN, STREAMS, max_tokens=300)
        load.wait_tokens(5)
        first.child.ask_to_stop()
        assert all(answer.is_complete for answer in load.finish())
    assert first.child.wait(30) == 0
    seen = prometheus.up()
    second = successor(stack)
    prometheus.wait(lambda: 1.0 in prometheus.up()[len(seen) :], "the successor is not scraped")
    with Load(stack.http_port, stack.model()) as load:
        load.start(Kind.PLAIN, STREAMS, max_tokens=20)
        assert all(answer.is_complete for answer in load.finish())
    prometheus.wait(lambda: STREAMS in completed(prometheus)[1:], "the successor's figures do not come")
    second.child.ask_to_stop()
    assert second.child.wait(30) == 0

    once_up = seen[seen.index(1.0) :]
    assert sum(once_up) >= 3
    # Failed scrapes, if any, are the last ones: the process was going.
    assert once_up == sorted(once_up, reverse=True)
    rising = prometheus.series(f'{{__name__=~"{_RISING}"}}')
    fallen = [
        name
        for name, samples in rising.items()
        if any(after < before for (_, before), (_, after) in pairwise(samples))
    ]
    assert len(rising) > 100
    assert fallen == []
    figures.record(
        row=18,
        what=f"Prometheus: {len(once_up)} scrapes from serving to the end; failed before it, counters fallen",
        value=f"0, {len(fallen)} of {len(rising)}",
        goal="0, 0",
    )
