"""Which series there are for rules and dashboards: those of a worker, and a few of others."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from dynamo import prometheus_names as names

from protocols.engine import EngineCapabilities
from service.telemetry.metrics import Metrics
from tests.doubles.maintenance import MoodyMaintenance
from tests.doubles.resting_graph import RestingGraph

# What the framework's bridge adds to every series of ours (docs/metrics.md), and what Prometheus and its
# operator add to every series of a target.
BRIDGE_LABELS = frozenset(
    {"dynamo_namespace", "dynamo_component", "dynamo_endpoint", "worker_id", "model", "model_name"}
)
SCRAPE_LABELS = frozenset({"job", "instance", "namespace", "pod", "container"})
# The operator's words, or this build's: a matcher may name any.
FREE_LABELS = (
    BRIDGE_LABELS | SCRAPE_LABELS | {"processor", "memory", "version", "engine", "framework_version"}
)

_FRONTEND, _COMPONENT = names.name_prefix.FRONTEND, names.name_prefix.COMPONENT
# Of Prometheus itself; of the framework, whose names are in a file that it ships; of TensorRT-LLM
# (its metrics collector: docs/operations.md, "What to watch with it").
OF_OTHERS: Mapping[str, frozenset[str]] = {
    "up": frozenset(),
    "ALERTS": frozenset({"alertname", "alertstate", "severity"}),
    f"{_COMPONENT}_{names.distributed_runtime.UPTIME_SECONDS}": frozenset(),
    f"{_COMPONENT}_{names.model_info.LOAD_TIME_SECONDS}": frozenset(),
    f"{names.name_prefix.WORK_HANDLER}_{names.work_handler.QUEUE_DEPTH}": frozenset(),
    f"{_FRONTEND}_{names.frontend_service.MODEL_MIGRATION_TOTAL}": frozenset({"model", "migration_type"}),
    "trtllm_num_requests_waiting": frozenset(),
    "trtllm_num_paused_requests": frozenset(),
}


@cache
def served() -> Mapping[str, Mapping[str, frozenset[str]]]:
    """Every sample of a worker whose engine tells everything, by name: its own labels, with their values."""
    metrics = Metrics(
        version="1",
        engine="torch",
        framework_version="1",
        model="m",
        capabilities=EngineCapabilities(processors=frozenset({"one"})),
    )
    metrics.watch_memories(MoodyMaintenance(lambda: ()))
    metrics.watch(RestingGraph())
    found: dict[str, dict[str, frozenset[str]]] = {}
    for family in metrics.registry.collect():
        for sample in family.samples:
            labels = found.setdefault(sample.name, {})
            for label, value in sample.labels.items():
                labels[label] = labels.get(label, frozenset()) | {value}
    return found


def family_of(sample: str) -> str:
    """A metric's name as the page has it, of one of its samples."""
    for ending in ("_bucket", "_sum", "_count"):
        if sample.endswith(ending) and f"{sample.removesuffix(ending)}_bucket" in served():
            return sample.removesuffix(ending)
    return sample
