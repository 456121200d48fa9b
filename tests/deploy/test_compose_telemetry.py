"""Prometheus, collector, Tempo and Grafana of the compose files: who is asked listens there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from tests.deploy import compose_files
from tests.deploy.compose_files import BASE, DEPLOY, OBSERVABILITY
from tests.e2e.servers import tool

FOLDER = DEPLOY / "observability"
SERVICES = compose_files.services([BASE, OBSERVABILITY])
# What the distribution otel/opentelemetry-collector 0.120.0 has, by its manifest; others have more.
COMPONENTS = {
    "receivers": {"nop", "otlp", "hostmetrics", "jaeger", "kafka", "opencensus", "prometheus", "zipkin"},
    "processors": {
        "batch", "memory_limiter", "attributes", "resource", "span", "probabilistic_sampler", "filter",
    },
    "exporters": {
        "debug", "nop", "otlp", "otlphttp", "file", "kafka", "opencensus", "prometheus",
        "prometheusremotewrite", "zipkin",
    },
}  # fmt: skip


def load(path: Path) -> Any:
    """A YAML file."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def hours(text: str) -> float:
    """A duration as Prometheus and Tempo write it."""
    return int(text[:-1]) * {"s": 1 / 3600, "m": 1 / 60, "h": 1, "d": 24, "w": 168}[text[-1]]


def listens(name: str) -> set[int]:
    """The ports of a service in its container."""
    return {port.inside for port in SERVICES[name].ports}


def mounted(name: str, target: str) -> Path:
    """What of the repository lies there in a service."""
    (path,) = [mount.path for mount in SERVICES[name].mounts if mount.target == target]
    assert path is not None
    return path


def test_prometheus_accepts_its_configuration_and_the_rules() -> None:
    """With promtool; rules and targets lie beside the file, in the repository as in the container."""
    words = [tool("promtool"), "check", "config", str(FOLDER / "prometheus.yml")]
    said = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert said.returncode == 0, said.stdout + said.stderr
    for name in ("prometheus.yml", "rules", "targets"):
        assert mounted("prometheus", f"/etc/prometheus/{name}") == FOLDER / name
    assert "--config.file=/etc/prometheus/prometheus.yml" in SERVICES["prometheus"].argv


def test_prometheus_keeps_what_its_rules_look_back_on() -> None:
    """The longest window of a rule, and as much again, so that an incident can be looked at after it."""
    texts = [file.read_text(encoding="utf-8") for file in (FOLDER / "rules").glob("*.yml")]
    windows = [hours(found) for text in texts for found in re.findall(r"\[(\d+[smhdw])\]", text)]
    (flag,) = [word for word in SERVICES["prometheus"].argv if "retention.time=" in word]
    assert max(windows) >= 72
    assert hours(flag.partition("=")[2]) >= 2 * max(windows)


def test_tempo_keeps_the_traces_of_a_day() -> None:
    """Who looks at an alert of the night finds the traces that the dashboard leads to."""
    assert hours(load(FOLDER / "tempo.yaml")["compactor"]["compaction"]["block_retention"]) >= 24


def test_every_file_of_rules_and_targets_is_read() -> None:
    """The patterns of the configuration leave none out; each file of targets belongs to one job."""
    configuration = load(FOLDER / "prometheus.yml")
    rules = {path for pattern in configuration["rule_files"] for path in FOLDER.glob(pattern)}
    assert rules == set((FOLDER / "rules").glob("*.yml"))
    jobs = [
        path
        for job in configuration["scrape_configs"]
        for sources in job["file_sd_configs"]
        for pattern in sources["files"]
        for path in FOLDER.glob(pattern)
    ]
    assert sorted(jobs) == sorted((FOLDER / "targets").glob("*.yml"))


def test_jobs_are_called_as_upstream_calls_them() -> None:
    """Its dashboards and ours select by these names."""
    names = [job["job_name"] for job in load(FOLDER / "prometheus.yml")["scrape_configs"]]
    assert names == ["dynamo-frontend", "dynamo-backend"]


def test_every_target_is_a_service_and_its_port() -> None:
    """No address of a service that is not there, or that does not listen."""
    for path in (FOLDER / "targets").glob("*.yml"):
        for group in load(path):
            for target in group["targets"]:
                name, port = target.split(":")
                assert int(port) in listens(name), target


def test_the_pipelines_of_the_collector_are_made_of_what_it_has() -> None:
    """Each component is defined, used, and in the distribution; the limiter of memory comes first."""
    configuration = load(mounted("otel-collector", "/etc/otel-collector.yaml"))
    pipelines: dict[str, dict[str, list[str]]] = configuration["service"]["pipelines"]
    for kind, known in COMPONENTS.items():
        used = {name for pipeline in pipelines.values() for name in pipeline[kind]}
        assert used == configuration[kind].keys()
        assert {name.split("/")[0] for name in used} <= known
    assert {pipeline["processors"][0] for pipeline in pipelines.values()} == {"memory_limiter"}
    # Dynamo sends both to one address.
    assert pipelines.keys() == {"traces", "logs"}


def test_spans_go_from_the_workers_to_the_collector_to_tempo() -> None:
    """Each address names a service, at a port where its configuration listens."""
    collector = load(mounted("otel-collector", "/etc/otel-collector.yaml"))
    received = {
        int(protocol["endpoint"].split(":")[1])
        for protocol in collector["receivers"]["otlp"]["protocols"].values()
    }
    assert received == listens("otel-collector")
    for name in ("frontend", "worker"):
        environ = SERVICES[name].environ({})
        address = urlsplit(environ["OTEL_EXPORTER_OTLP_ENDPOINT"])
        assert address.hostname == "otel-collector"
        assert address.port in received
        assert environ["OTEL_EXPORT_ENABLED"] == "1"
    host, port = collector["exporters"]["otlp/tempo"]["endpoint"].split(":")
    tempo = load(mounted("tempo", "/etc/tempo.yaml"))
    grpc = tempo["distributor"]["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"]
    assert (host, port) == ("tempo", grpc.split(":")[1])


def test_frontend_and_worker_are_told_apart_in_traces() -> None:
    """By their service names, which the dashboard's links search for."""
    names = [SERVICES[name].environ({})["OTEL_SERVICE_NAME"] for name in ("frontend", "worker")]
    assert names == ["dynamo-frontend", "dynamo-actor-worker"]


def test_tempo_writes_where_it_may() -> None:
    """Its root is read-only: all its paths lie in a tmpfs of the service."""
    storage = load(mounted("tempo", "/etc/tempo.yaml"))["storage"]["trace"]
    places = [entry.split(":")[0] for entry in SERVICES["tempo"].raw["tmpfs"]]
    for path in (storage["wal"]["path"], storage["local"]["path"]):
        assert any(path.startswith(f"{place}/") for place in places), path


def test_grafana_finds_its_sources_under_upstream_s_ids() -> None:
    """`prometheus` and `tempo`, each at a service that listens there."""
    provisioning = mounted("grafana", "/etc/grafana/provisioning")
    (path,) = (provisioning / "datasources").iterdir()
    sources = load(path)["datasources"]
    assert {source["uid"]: source["type"] for source in sources} == {
        "prometheus": "prometheus",
        "tempo": "tempo",
    }
    for source in sources:
        address = urlsplit(source["url"])
        assert address.port in listens(str(address.hostname)), source["url"]
    assert [source["uid"] for source in sources if source.get("isDefault")] == ["prometheus"]


def test_grafana_computes_rates_from_the_interval_that_is_scraped() -> None:
    """`$__rate_interval` would be too short, and graphs empty, with a longer one."""
    provisioning = mounted("grafana", "/etc/grafana/provisioning")
    (source,) = [
        one
        for one in load(provisioning / "datasources/datasources.yaml")["datasources"]
        if one.get("isDefault")
    ]
    jobs = {job["job_name"]: job for job in load(FOLDER / "prometheus.yml")["scrape_configs"]}
    assert source["jsonData"]["timeInterval"] == jobs["dynamo-backend"]["scrape_interval"]


def test_grafana_shows_the_dashboards_of_the_repository() -> None:
    """The provider looks where they are mounted."""
    (path,) = (mounted("grafana", "/etc/grafana/provisioning") / "dashboards").iterdir()
    (provider,) = load(path)["providers"]
    assert mounted("grafana", provider["options"]["path"]) == FOLDER / "grafana"
    assert list((FOLDER / "grafana").glob("*.json"))
