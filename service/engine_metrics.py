# pyright: reportMissingImports=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUnknownVariableType=false
# The framework's handle lives in its compiled module, which has no stubs.
"""Metrics that an engine's own library makes, beside ours on the framework's one ``/metrics``."""

from __future__ import annotations

from dynamo._core.backend import EngineMetrics
from dynamo.common.backend.metrics import register_engine_registry
from prometheus_client import REGISTRY

# What begins every name of a library that puts its metrics on Prometheus's default registry.
OWN_PREFIXES = {"trtllm": "trtllm_"}


def bridge_engine_metrics(metrics: EngineMetrics, engine_name: str) -> bool:
    """Show them, with the framework's labels; False for engines without any. Once a worker.

    The registry is read as this process has it, and the files of ``PROMETHEUS_MULTIPROC_DIR`` are not: the
    library feeds its metrics in this process, so they would show the same series a second time.
    """
    prefix = OWN_PREFIXES.get(engine_name)
    if prefix is None:
        return False
    register_engine_registry(metrics, REGISTRY, prefix_filters=[prefix])
    return True
