"""TensorRT-LLM's metrics on Prometheus's default registry, of which a process has one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY

if TYPE_CHECKING:
    from prometheus_client.registry import Collector


@contextmanager
def without_own_metrics() -> Iterator[None]:
    """None of its names is on the registry, and what is put there goes; what others had there comes back."""
    before = _take_away()
    try:
        yield
    finally:
        _take_away()
        for collector in before:
            REGISTRY.register(collector)


def _take_away() -> list[Collector]:
    found = [
        collector
        for collector, names in REGISTRY._collector_to_names.items()
        if any(name.startswith("trtllm_") for name in names)
    ]
    for collector in found:
        REGISTRY.unregister(collector)
    return found
