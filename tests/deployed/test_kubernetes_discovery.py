"""Promises about the variant without Dynamo's operator, kept by real processes beside an API server of ours.

Frontend and worker run by what the manifests say (``tests/deploy/cluster.py`` says what is put in place of
a cluster). What the real API server, kubelet and endpoint controller do is played.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import psutil
import pytest

from service.demo.client import Client
from tests.deploy import kustomize
from tests.deploy.cluster import Cluster, Running
from tests.deploy.kube_api import Asked
from tests.deploy.pods import PLAIN
from tests.e2e.stacks import Reader

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(600)]

READY_S = 240.0
DISCOVERY = {"endpointslices": "discovery.k8s.io", "dynamoworkermetadatas": "nvidia.com"}


class Service:
    """A cluster with a frontend and a worker of the folder plain/cpu, both ready."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.frontend = self.cluster.start("dynamo-frontend", 0)
        self.client = Client(self.frontend.port)
        self.worker = self.add_worker(0)

    def add_worker(self, index: int) -> Running:
        """One more, as a rolling update adds it. Returns when it is ready."""
        worker = self.cluster.start("dynamo-actor-worker", index)
        self.wait(worker.is_ready, worker)
        return worker

    def wait(self, is_so: Callable[[], object], about: Running) -> None:
        """The cluster goes on meanwhile."""
        self.cluster.wait(is_so, about, READY_S)

    def ask(self, words: int) -> Reader:
        """A stream that has begun."""
        options = {"max_tokens": words, "ignore_eos": True}
        reader = Reader(self.client, "smollm2-135m", "Count up from one.", options).start()
        reader.wait_text(3, READY_S)
        return reader


def live_at(worker: Running) -> int:
    """Requests that it is at: a control route that is open to everybody."""
    status, text = worker.client.post("/engine/control/status", {})
    assert status == 200, text
    return int(json.loads(text)["live"])


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Ended by the pids of its processes."""
    cluster = Cluster(kustomize.build(PLAIN / "cpu"), tmp_path_factory.mktemp("cluster"))
    try:
        yield Service(cluster)
    finally:
        cluster.stop()


def test_a_frontend_finds_a_worker_by_what_the_manifests_say(service: Service) -> None:
    """Account, Role, labels, variables and probes are enough: a question is answered."""
    service.wait(service.client.models, service.frontend)
    assert service.client.models() == ["smollm2-135m"]
    assert service.ask(8).finish().reason == "length"


def test_nobody_asks_for_more_than_the_role_permits(service: Service) -> None:
    """Nothing was refused; slices and workers' objects are watched, and each worker writes its own."""
    service.wait(service.client.models, service.frontend)
    watched = {Asked(group, name, verb) for name, group in DISCOVERY.items() for verb in ("list", "watch")}
    written = {Asked("nvidia.com", "dynamoworkermetadatas", verb) for verb in ("create", "patch")}
    assert service.cluster.rights.refused == set()
    assert service.cluster.rights.asked == watched | written
    metadata = service.cluster.metadata(service.worker)
    assert metadata is not None
    assert metadata["metadata"]["ownerReferences"][0]["name"] == service.worker.name


def test_nobody_connects_to_anything_else(service: Service) -> None:
    """The API server and each other: what the NetworkPolicies let out is all that is needed."""
    reader = service.ask(30)
    pids = [running.child.pid for running in service.cluster.pods]
    programs = [one for pid in pids for one in (psutil.Process(pid), *psutil.Process(pid).children(True))]
    sockets = [socket for one in programs for socket in one.net_connections("inet")]
    assert reader.finish().reason == "length"
    served = {socket.laddr.port for socket in sockets if socket.status == psutil.CONN_LISTEN}
    assert {running.port for running in service.cluster.pods} < served
    allowed = served | {int(service.cluster.api_url.rpartition(":")[2])}
    connected = [one for one in sockets if one.status != psutil.CONN_LISTEN]
    others = [one for one in connected if not {one.raddr.port, one.laddr.port} & allowed]
    assert others == []
    # A port of its own for the request plane of the worker, and one for the answers to the frontend.
    assert len(served) >= len(pids) + 2


def test_an_update_loses_no_stream(service: Service) -> None:
    """A new worker is ready before the old one goes, whose requests end whole; it ends with 0."""
    service.wait(service.client.models, service.frontend)
    old, service.worker = service.worker, service.add_worker(1)
    # The frontend takes turns, so both have some.
    readers = [service.ask(150) for _ in range(4)]
    assert live_at(old) > 0
    service.cluster.delete(old)
    assert [reader.finish(READY_S).reason for reader in readers] == ["length"] * 4
    assert old.child.wait(old.pod.grace_s) == 0, old.child.last_lines(40)
    service.cluster.sync()
    assert service.cluster.metadata(old) is None
    assert service.ask(8).finish().reason == "length"


def test_a_worker_that_is_not_ready_is_not_asked(service: Service) -> None:
    """Readiness is routing: out of the slice's ready ones it is out of the frontend, and comes back."""
    service.wait(service.client.models, service.frontend)
    service.worker.is_terminating = True
    service.wait(lambda: not service.client.models(), service.frontend)
    service.worker.is_terminating = False
    service.wait(service.client.models, service.frontend)
