"""Promises about the times in the manifests: computed from the files and from the worker's own rule."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocols.spec import Stage
from service.options import ConfigError
from service.options.budgets import (
    PREFILL_DRAIN_VARIABLE,
    TERMINATION_GRACE_VARIABLE,
    WORKER_TIMEOUT_VARIABLE,
)
from tests.deploy.pods import Pod, named, pods_in, shipped
from tests.deploy.worker_pods import is_on_gpu, settings_in

SHIPPED = shipped()
PODS = [(f"{path} {pod.owner}", pod) for path, objects in SHIPPED.items() for pod in pods_in(objects)]
DEPLOYMENTS = [
    (path, one["metadata"]["name"])
    for path, objects in SHIPPED.items()
    for one in objects
    if one["kind"] == "Deployment"
]
WORKERS = [pytest.param(pod, id=name) for name, pod in PODS if pod.is_worker]
FRONTENDS = [pytest.param(pod, id=name) for name, pod in PODS if not pod.is_worker]


def pre_stop_s(pod: Pod) -> int:
    """What the kubelet waits before SIGTERM; the grace period has begun by then."""
    return int(pod.main.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0))


def test_there_are_workers_and_frontends() -> None:
    """Every path has a worker and a frontend, so none of the checks below looks at nothing."""
    assert len(WORKERS) == 8
    assert len(FRONTENDS) == 6


@pytest.mark.parametrize("pod", WORKERS)
def test_the_worker_takes_what_its_manifest_gives_it(pod: Pod, tmp_path: Path) -> None:
    """Arguments, variables and engine file start a worker without an error, and without a warning to heed."""
    settings = settings_in(pod, pod.main, tmp_path)
    assert settings.warnings == ()
    assert settings.engine.expected == ("trtllm" if is_on_gpu(pod.main) else "torch")
    assert settings.runtime.discovery_backend == "kubernetes"
    assert settings.environment["DYN_SYSTEM_HOST"] == "0.0.0.0"


@pytest.mark.parametrize("pod", WORKERS)
def test_the_grace_period_is_longer_than_the_way_out(pod: Pod, tmp_path: Path) -> None:
    """SIGKILL comes at least five seconds after the last exit of the worker, and the worker was told when."""
    budgets = settings_in(pod, pod.main, tmp_path).drain
    assert pre_stop_s(pod) + budgets.hard_exit_s + 5 <= pod.grace_s
    assert pod.environment(pod.main)[TERMINATION_GRACE_VARIABLE] == str(pod.grace_s)


@pytest.mark.parametrize("pod", WORKERS)
def test_the_framework_is_told_by_the_worker(pod: Pod, tmp_path: Path) -> None:
    """The manifest sets none of the framework's time-outs; the worker derives 135 and 120 seconds."""
    settings = settings_in(pod, pod.main, tmp_path)
    assert settings.environment[WORKER_TIMEOUT_VARIABLE] == "135"
    assert settings.environment[PREFILL_DRAIN_VARIABLE] == "120"


@pytest.mark.parametrize("pod", WORKERS)
def test_a_grace_period_that_is_too_short_stops_the_start(pod: Pod, tmp_path: Path) -> None:
    """Whoever lowers the pod's grace period alone, and says so, gets code 2 and loses no requests."""
    shorter = [e for e in pod.main["env"] if e["name"] != TERMINATION_GRACE_VARIABLE]
    shorter.append({"name": TERMINATION_GRACE_VARIABLE, "value": "60"})
    with pytest.raises(ConfigError, match="too short"):
        settings_in(pod, pod.main | {"env": shorter}, tmp_path)


@pytest.mark.parametrize("pod", [p for p in WORKERS if "prefill" in str(p.id)])
def test_a_prefill_worker_outlives_its_transfers(pod: Pod, tmp_path: Path) -> None:
    """It drains for longer than a decode worker may take to fetch a KV cache."""
    settings = settings_in(pod, pod.main, tmp_path)
    arguments = settings.engine_arguments
    assert arguments is not None
    assert settings.runtime.role is Stage.PREFILL
    assert arguments.value("cache_transceiver_config.kv_transfer_timeout_ms") == 60_000
    assert settings.drain.drain_until_s - settings.drain.grace_s > 60


@pytest.mark.parametrize("pod", FRONTENDS)
def test_a_frontend_ends_its_streams_within_its_grace_period(pod: Pod) -> None:
    """preStop and the longest stream, and ten seconds to end, fit into what the kubelet gives."""
    streams_s = int(pod.environment(pod.main)["DYN_HTTP_GRACEFUL_SHUTDOWN_TIMEOUT_SECS"])
    assert pre_stop_s(pod) == 10
    assert pre_stop_s(pod) + streams_s + 10 <= pod.grace_s


@pytest.mark.parametrize("pod", FRONTENDS)
def test_a_frontend_continues_what_a_worker_hands_back(pod: Pod) -> None:
    """Requests that a drain moves need a frontend that takes them up."""
    assert pod.main["args"] == ["--migration-limit", "3"]


@pytest.mark.parametrize(("path", "name"), DEPLOYMENTS)
def test_a_rollout_waits_for_as_long_as_a_start_may_take(path: str, name: str) -> None:
    """It is not called failed (after 600 s by default) while the startup probe still gives a pod time."""
    spec = named(SHIPPED[path], "Deployment", name)["spec"]
    probe = spec["template"]["spec"]["containers"][0].get("startupProbe", {})
    start_s = probe.get("failureThreshold", 0) * probe.get("periodSeconds", 0)
    assert start_s + spec["minReadySeconds"] + 120 <= spec.get("progressDeadlineSeconds", 600)
