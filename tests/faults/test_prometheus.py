"""A real Prometheus beside the worker: through a drain, the end of the process, and its successor."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from service.demo.client import Client
from tests.e2e.engines import Served
from tests.e2e.prometheus import Prometheus
from tests.e2e.stacks import Stack, Worker
from tests.faults.load import Kind, Load

if TYPE_CHECKING:
    from tests.faults.figures import Figures

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

STREAMS = 32
_RISING = "dynamo_actor_.+_(total|count|bucket)"


@pytest.fixture
def stack(served: Served, word_model: Path, tmp_path: Path) -> Iterator[Stack]:
    """A frontend and one worker."""
    with served.stack(tmp_path / "stack", word_model, step_ms=20) as one:
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
