"""Promises about the metrics of an engine's own library on the framework's page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from prometheus_client import REGISTRY, Counter, Gauge

from service.engine_metrics import bridge_engine_metrics
from tests.doubles.own_metrics import without_own_metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class PageDouble:
    """The framework's handle: keeps what is called at every scrape."""

    def __init__(self) -> None:
        self.auto_labels = {"dynamo_namespace": "test", "model_name": "served"}
        self._callbacks: list[Callable[[], str]] = []

    def register_prometheus_expfmt_callback(self, callback: Callable[[], str]) -> None:
        self._callbacks.append(callback)

    def lines(self) -> list[str]:
        """All series, without help and types."""
        text = "".join(callback() for callback in self._callbacks)
        return [line for line in text.splitlines() if line and not line.startswith("#")]


@pytest.fixture
def library_metrics() -> Iterator[None]:
    """What a library puts on the default registry; taken back at the end."""
    labels = ("model_name", "engine_type")
    with without_own_metrics():
        running = Gauge("trtllm_num_requests_running", "text", labels)
        success = Counter("trtllm_request_success", "text", labels)
        other = Gauge("python_something", "text")
        running.labels("poet", "trtllm").set(3)
        success.labels("poet", "trtllm").inc(2)
        yield
        REGISTRY.unregister(other)


def page_of(engine: str) -> PageDouble:
    page = PageDouble()
    assert bridge_engine_metrics(cast("Any", page), engine) is (engine == "trtllm")
    return page


@pytest.mark.usefixtures("library_metrics")
def test_the_librarys_metrics_are_shown_under_their_own_names() -> None:
    """With the framework's labels beside their own, which win; and nothing else of the registry."""
    lines = page_of("trtllm").lines()
    assert all(line.startswith("trtllm_") for line in lines)
    (running,) = (line for line in lines if "running" in line)
    assert 'dynamo_namespace="test"' in running
    assert 'model_name="poet"' in running
    assert running.endswith(" 3.0")


@pytest.mark.usefixtures("library_metrics")
def test_each_is_shown_once_also_with_a_directory_for_several_processes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Libraries set it; whoever reads the files as well shows everything twice, or nothing (A55)."""
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    names = [line.split("{")[0] for line in page_of("trtllm").lines()]
    assert sorted(name for name in names if not name.endswith("_created")) == [
        "trtllm_num_requests_running",
        "trtllm_request_success_total",
    ]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("engine", ["torch", "synthetic"])
def test_our_own_engines_have_none(engine: str) -> None:
    """Theirs are in our registry."""
    assert page_of(engine).lines() == []
