"""The compose files, run as they are but for containers: scraped, judged by the shipped rules, and traced."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from service.demo.processes import free_port
from service.models.cache import cache_root
from tests.built_in import built_in_model
from tests.deploy.compose_files import DEPLOY, seconds
from tests.deploy.prometheus_api import PrometheusApi
from tests.deploy.topology import Topology
from tests.e2e.waiting import wait_until
from tests.service.telemetry.collectors import Collector, attributes_of, grpc_collector

# The wait for one alert is the one of the shipped rule: two minutes.
pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(420)]

NO_READY_WORKER = "DynamoActorNoReadyWorker"
# Two scrapes and two evaluations, and what a busy machine adds.
SEEN_S = 60.0
# Rules that read days are evaluated once a minute, the first time at any moment of the first one.
SLOWEST_RULE_S = 60.0


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    """In the place of the collector: takes spans and log records."""
    with grpc_collector(keeps_logs=True) as taken:
        yield taken


@pytest.fixture(scope="module")
def topology(collector: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topology]:
    """All processes, healthy by their own health checks."""
    built_in_model()
    with Topology(tmp_path_factory.mktemp("topology"), collector.endpoint) as running:
        yield running


@pytest.fixture(scope="module")
def prometheus(topology: Topology) -> PrometheusApi:
    """The one of the topology."""
    return PrometheusApi(topology.prometheus)


def ask(topology: Topology) -> str:
    """One question to the frontend; the answer's text."""
    wait_until(topology.frontend.open_models, lambda: topology.log("frontend"))
    body = {
        "model": topology.frontend.models()[0],
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
        "max_tokens": 24,
    }
    status, text = topology.frontend.post("/v1/chat/completions", body)
    assert status == 200, text
    answer: str = json.loads(text)["choices"][0]["message"]["content"]
    return answer


def waits_s(alert: str) -> float:
    """The ``for`` of the shipped rule."""
    for path in sorted((DEPLOY / "observability" / "rules").glob("*.yml")):
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]:
            for rule in group["rules"]:
                if rule.get("alert") == alert:
                    return seconds(rule["for"])
    raise AssertionError(f"no rule is called {alert}")


def test_a_question_to_the_frontend_is_answered(topology: Topology) -> None:
    """Etcd, frontend and worker found each other by the variables of the compose file alone."""
    assert "Paris" in ask(topology)


def test_the_frontend_gets_the_tokenizer_from_the_worker(topology: Topology) -> None:
    """It has no folder of the worker's: what the worker's system port gives lies in a cache of its own."""
    wait_until(topology.frontend.models, lambda: topology.log("frontend"))
    tokenizer = (built_in_model() / "tokenizer.json").read_bytes()
    fetched = [path for path in topology.cache("frontend").rglob("*") if path.is_file()]
    assert tokenizer in [path.read_bytes() for path in fetched]


def test_prometheus_reaches_every_target(topology: Topology, prometheus: PrometheusApi) -> None:
    """The shipped jobs, with generated addresses: each is scraped, and our figures are there."""

    def are_up() -> bool:
        found = prometheus.targets()
        return found.keys() == {"dynamo-frontend", "dynamo-backend"} and all(
            target["health"] == "up" for target in found.values()
        )

    wait_until(are_up, prometheus.targets, SEEN_S, every_s=0.2)
    assert prometheus.targets()["dynamo-backend"]["labels"]["instance"] == topology.address("worker")
    wait_until(
        lambda: prometheus.value('dynamo_actor_worker_state{job="dynamo-backend",state="serving"}') == [1.0],
        "no worker is seen as serving",
        SEEN_S,
        every_s=0.2,
    )


def test_every_shipped_rule_is_loaded_and_evaluates(prometheus: PrometheusApi) -> None:
    """All rules of all files, on real series: none has an error, and no alert fires while all is well."""
    shipped = [
        rule.get("record") or rule["alert"]
        for path in (DEPLOY / "observability" / "rules").glob("*.yml")
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
        for rule in group["rules"]
    ]
    wait_until(
        lambda: all(rule["health"] != "unknown" for rule in prometheus.rules()),
        "some rules were never evaluated",
        SLOWEST_RULE_S + SEEN_S,
        every_s=0.2,
    )
    rules = prometheus.rules()
    assert sorted(rule["name"] for rule in rules) == sorted(shipped)
    assert [(rule["name"], rule["lastError"]) for rule in rules if rule["health"] != "ok"] == []
    assert [alert for alert in prometheus.alerts() if alert["state"] == "firing"] == []


def test_a_request_is_one_trace_from_the_frontend_to_our_spans(
    topology: Topology, collector: Collector
) -> None:
    """At the collector's address from the compose file, under the service names that it gives."""
    ask(topology)

    def services_of_traces() -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for request in tuple(collector.requests):
            for resource in request.resource_spans:
                name = str(attributes_of(resource.resource.attributes)["service.name"])
                for scope in resource.scope_spans:
                    for span in scope.spans:
                        found.setdefault(span.trace_id.hex(), set()).add(f"{name}: {span.name}")
        return found

    wanted = {"dynamo-frontend: http-request", "dynamo-actor-worker: actor.stream"}
    wait_until(
        lambda: any(wanted <= spans for spans in services_of_traces().values()),
        services_of_traces,
        SEEN_S,
        every_s=0.2,
    )


def test_draining_the_only_worker_raises_the_alert_and_resume_clears_it(
    topology: Topology, prometheus: PrometheusApi
) -> None:
    """By hand, as in the worker's container: pending, firing once its time is over, gone after `resume`."""
    wait_until(
        lambda: prometheus.value('dynamo_actor_worker_state{state="serving"}') == [1.0],
        "the worker was never seen as serving",
        SEEN_S,
        every_s=0.2,
    )
    drained = topology.run_in("worker", ["dynamo-actor-worker", "drain", "--timeout", "30"])
    assert drained.returncode == 0, drained.stdout + drained.stderr
    # A worker that is drained is not restarted for it.
    assert topology.is_healthy("worker")
    wait_until(
        lambda: prometheus.alert_states(NO_READY_WORKER) == {"pending"},
        prometheus.alerts,
        SEEN_S,
        every_s=0.2,
    )
    wait_until(
        lambda: prometheus.alert_states(NO_READY_WORKER) == {"firing"},
        prometheus.alerts,
        waits_s(NO_READY_WORKER) + SEEN_S,
        every_s=0.2,
    )
    firing = {alert["labels"]["alertname"] for alert in prometheus.alerts() if alert["state"] == "firing"}
    assert firing == {NO_READY_WORKER}
    resumed = topology.run_in("worker", ["dynamo-actor-worker", "resume"])
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    wait_until(
        lambda: prometheus.alert_states(NO_READY_WORKER) == set(), prometheus.alerts, SEEN_S, every_s=0.2
    )
    assert "Paris" in ask(topology)


@pytest.mark.parametrize("program", [("dynamo.frontend",), ("service", "--engine", "synthetic")])
def test_whoever_is_told_of_a_nats_does_not_start_without_it(
    program: tuple[str, ...], tmp_path: Path
) -> None:
    """Also where nothing goes over it: so NATS_SERVER is set by the file that brings NATS, and no other."""
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "DYN_ACTOR_CACHE_DIR": str(cache_root(os.environ)),
        "DYN_DISCOVERY_BACKEND": "file",
        "DYN_FILE_KV": str(tmp_path / "discovery"),
        "NATS_SERVER": f"nats://127.0.0.1:{free_port()}",
    }
    words = [sys.executable, "-m", *program]
    said = subprocess.run(
        words, env=environ, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert said.returncode not in {0, 2}
    assert "Failed to connect to NATS" in said.stdout + said.stderr
