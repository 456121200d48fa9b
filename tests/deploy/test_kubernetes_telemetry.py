"""Promises about what leaves the pods: metrics often enough for alerts, traces to where they are taken."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pytest

from service.last_scrape import ANSWER_S, LONGEST_S
from tests.deploy import kustomize
from tests.deploy.compose_files import seconds
from tests.deploy.listening import collector_port
from tests.deploy.pods import DEPLOY, PLAIN, named, pods_in, shipped
from tests.deploy.reach import Peer, may_connect, peer_of
from tests.deploy.rule_files import read

SHIPPED = shipped()
MONITORS = kustomize.build(PLAIN / "monitoring")
PROMETHEUS = read(DEPLOY / "observability" / "prometheus.yml")
# Whether labels of what is scraped win over those of the target. A frontend's `endpoint` is one of its API's,
# the target's is the name of a port. Of a worker rules want to know which target it was, whatever it says.
HONOURED = {"frontend": True, "backend": False}


def endpoint_of(name: str) -> dict[str, Any]:
    """What the PodMonitor scrapes."""
    (endpoint,) = named(MONITORS, "PodMonitor", f"dynamo-{name}")["spec"]["podMetricsEndpoints"]
    found: dict[str, Any] = endpoint
    return found


def interval_s(name: str) -> int:
    """How often the Prometheus of one machine scrapes that job: what rules and dashboard were made for."""
    (job,) = [job for job in PROMETHEUS["scrape_configs"] if job["job_name"] == f"dynamo-{name}"]
    return seconds(job.get("scrape_interval", PROMETHEUS["global"]["scrape_interval"]))


@pytest.mark.parametrize("name", HONOURED)
def test_jobs_have_the_names_that_rules_and_dashboards_know(name: str) -> None:
    """As upstream's PodMonitors and our prometheus.yml call them, at the path where the figures are."""
    endpoint = endpoint_of(name)
    jobs = [one["replacement"] for one in endpoint["relabelings"] if one["targetLabel"] == "job"]
    assert jobs == [f"dynamo-{name}"]
    assert interval_s(name) > 0
    assert endpoint["path"] == "/metrics"


@pytest.mark.parametrize("name", HONOURED)
def test_pods_are_scraped_as_often_as_on_one_machine(name: str) -> None:
    """A drain over its budget is told before the pod is killed, and no graph is empty, at that pace only."""
    assert 0 < seconds(endpoint_of(name)["interval"]) <= interval_s(name)
    assert endpoint_of(name).get("honorLabels", False) is HONOURED[name]


def test_a_worker_that_waits_to_be_scraped_is_scraped() -> None:
    """By whichever Prometheus: its wait is longer than the time between two scrapes, and than the answer."""
    for every_s in (interval_s("backend"), seconds(endpoint_of("backend")["interval"])):
        assert every_s + ANSWER_S < LONGEST_S


@pytest.mark.parametrize("path", [path for path in SHIPPED if path.startswith("plain")])
def test_traces_go_where_a_collector_takes_them(path: str) -> None:
    """The port of the protocol that is used, on a collector that the policies let pods reach."""
    for pod in pods_in(SHIPPED[path]):
        environ = pod.environment(pod.main)
        address = urlsplit(environ["OTEL_EXPORTER_OTLP_ENDPOINT"])
        assert address.port == collector_port(environ)
        service, _, namespace = str(address.hostname).partition(".")
        collector = Peer(namespace, {"app": service})
        assert may_connect(SHIPPED[path], peer_of(pod), collector, collector_port(environ))
