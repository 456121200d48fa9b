"""Promises of what feeds TensorRT-LLM's own metrics: every figure once, whatever ranks it comes from."""

from __future__ import annotations

import random
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from actors.engines.trtllm.figures import metrics as engine_metrics
from actors.engines.trtllm.figures.metrics import BUCKETS, EngineMetrics, collector_of_process
from tests.actors.engines.trtllm.stats_telling import stats_row
from tests.doubles.own_metrics import without_own_metrics
from tests.doubles.trtllm_site import double_on_path

if TYPE_CHECKING:
    from collections.abc import Iterator


class CollectorDouble:
    """Adds up as the library does: by differences to the row before, whoever told it. mood: raised."""

    def __init__(self, labels: dict[str, str] | None = None, **buckets: Any) -> None:
        self.labels = labels
        self.buckets = buckets
        self.mood: Exception | None = None
        self.requests: list[dict[Any, Any]] = []
        self.rows: list[dict[str, Any]] = []
        self.reused = self.completed = 0
        self._before = 0

    def log_metrics_dict(self, metrics_dict: dict[Any, Any]) -> None:
        self._maybe_raise()
        self.requests.append(metrics_dict)

    def log_iteration_stats(self, iteration_stats: dict[str, Any]) -> None:
        self._maybe_raise()
        self.rows.append(iteration_stats)
        self.completed += iteration_stats["numCompletedRequests"]
        reused = iteration_stats.get("kvCacheStats", {}).get("reusedBlocks")
        if reused is not None:
            self.reused += max(0, reused - self._before)
            self._before = reused

    def _maybe_raise(self) -> None:
        if self.mood is not None:
            raise self.mood


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No collector yet, and none of its names on the registry; what others put there comes back."""
    monkeypatch.setattr(engine_metrics._OfProcess, "collector", None)
    monkeypatch.setattr(engine_metrics._OfProcess, "labels", None)
    with without_own_metrics():
        yield


@pytest.fixture
def library() -> Iterator[Any]:
    """The library's class, on Prometheus's default registry, which is left as it was."""
    before = set(REGISTRY._collector_to_names)
    with double_on_path():
        yield import_module("tensorrt_llm.metrics")
    for collector in set(REGISTRY._collector_to_names) - before:
        REGISTRY.unregister(collector)


def result(metrics: Any = None, candidates: Any = None) -> Any:
    return SimpleNamespace(metrics_dict=metrics, candidate_metrics=candidates)


def test_a_finished_request_is_counted_once() -> None:
    """One choice has the request's own dictionary; of several each has one, and those count."""
    collector = CollectorDouble()
    metrics = EngineMetrics(collector)
    metrics.finished(result({"finished_reason": "stop"}))
    metrics.finished(
        result({"finished_reason": "stop"}, [{"finished_reason": "a"}, {"finished_reason": "b"}])
    )
    assert [each["finished_reason"] for each in collector.requests] == ["stop", "a", "b"]


@pytest.mark.parametrize("nothing", [result(), result({}, []), result(None, [{}, None]), object(), None])
def test_an_engine_that_does_not_measure_is_no_failure(nothing: object) -> None:
    """Without ``return_perf_metrics`` there is nothing to count."""
    collector = CollectorDouble()
    metrics = EngineMetrics(collector)
    metrics.finished(nothing)
    assert (collector.requests, metrics.failures) == ([], 0)


def test_what_the_collector_does_not_take_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """It is counted, and said once, without a word of what was in it."""
    collector = CollectorDouble()
    metrics = EngineMetrics(collector)
    collector.mood = KeyError("a secret")
    metrics.finished(result({"finished_reason": "stop"}))
    metrics.iteration([stats_row()])
    assert metrics.failures == 2
    assert [record.getMessage() for record in caplog.records] == [
        "TensorRT-LLM's metrics did not take a figure (KeyError)"
    ]
    collector.mood = None
    metrics.iteration([stats_row()])
    assert len(collector.rows) == 1


def test_rows_of_one_rank_are_handed_on_as_they_are() -> None:
    """In their order; what is no row, or of another rank, is left out."""
    collector = CollectorDouble()
    rows = [stats_row(1), None, stats_row(2, rank=1), stats_row(3, rank=None)]
    EngineMetrics(collector).iteration(rows)
    assert collector.rows == [rows[0], rows[3]]


def test_what_ranks_have_is_added_up_and_what_an_iteration_did_is_not() -> None:
    """Both rows together would otherwise count twice, or the last one would hide the others."""
    collector = CollectorDouble()
    changes = {"kvCacheStats__usedNumBlocks": 2, "inflightBatchingStats__numCtxTokens": 5, "gpuMemUsage": 24}
    other = stats_row(
        1, rank=1, numActiveRequests=1, numQueuedRequests=0, kvCacheStats__reusedBlocks=0, **changes
    )
    EngineMetrics(collector, ranks=2).iteration([stats_row(1), other])
    first, second = collector.rows
    assert first == stats_row(1)
    assert (second["numActiveRequests"], second["numQueuedRequests"], second["maxNumActiveRequests"]) == (
        4,
        5,
        16,
    )
    assert second["gpuMemUsage"] == 1024
    assert (second["numCompletedRequests"], second["iterLatencyMS"]) == (1, 10.0)
    assert second["inflightBatchingStats"]["numCtxTokens"] == 5
    assert second["inflightBatchingStats"]["numPausedRequests"] == 2
    cache = second["kvCacheStats"]
    assert (cache["usedNumBlocks"], cache["maxNumBlocks"], cache["tokensPerBlock"]) == (42, 200, 32)
    assert cache["cacheHitRate"] == 10 / 70


def test_a_rank_that_leaves_its_cache_out_for_a_while_is_not_counted_again() -> None:
    """Its figures are what it told last, so that the sum does not fall and rise."""
    collector = CollectorDouble()
    metrics = EngineMetrics(collector, ranks=2)
    metrics.iteration(
        [stats_row(1), stats_row(1, rank=1), stats_row(2, rank=1, kvCacheStats=None), stats_row(2)]
    )
    assert collector.reused == 20
    assert "kvCacheStats" not in collector.rows[2]


@given(
    steps=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 50), st.booleans()), max_size=30),
    seed=st.integers(0, 5),
)
def test_interleaved_ranks_are_counted_exactly(steps: list[tuple[int, int, bool]], seed: int) -> None:
    """In whatever order and pieces they come: what was found in the caches is what the counter says."""
    collector = CollectorDouble()
    metrics = EngineMetrics(collector, ranks=3)
    found = [0, 0, 0]
    rows: list[dict[str, Any]] = []
    for rank, more, tells in steps:
        found[rank] += more if tells else 0
        cache: dict[str, Any] = {"kvCacheStats": None}
        if tells:
            cache = {"kvCacheStats__reusedBlocks": found[rank]}
        rows.append(stats_row(rank=rank, **cache))
    pieces = random.Random(seed)
    while rows:
        size = pieces.randint(1, len(rows))
        metrics.iteration(rows[:size])
        del rows[:size]
    assert collector.reused == sum(found)
    assert collector.completed == len(steps)


def test_a_process_has_one_collector() -> None:
    """A second one would find its names taken. Its labels and bounds are those of the first call."""
    buckets = {"time_to_first_token_buckets": [0.1, 1.0], "request_queue_time_buckets": None}
    first = collector_of_process(CollectorDouble, "poet", buckets)
    assert isinstance(first, CollectorDouble)
    assert first.labels == {"model_name": "poet", "engine_type": "trtllm"}
    assert first.buckets == {"time_to_first_token_buckets": [0.1, 1.0]}
    assert collector_of_process(CollectorDouble, "poet", {}) is first
    with pytest.raises(ValueError, match="another model"):
        collector_of_process(CollectorDouble, "other", {})


def test_buckets_of_another_name_are_refused_by_name() -> None:
    """Nothing is made."""
    with pytest.raises(ValueError, match=r"prometheus_metrics_config\.e2e_buckets is not one of e2e_request"):
        collector_of_process(CollectorDouble, "poet", {"e2e_buckets": [1.0]})


def test_the_library_takes_all_of_it(library: Any) -> None:
    """Labels, bounds, a request, rows of two ranks: they stand on the default registry."""
    bounds = {name: [0.5, 2.0] for name in BUCKETS}
    collector = collector_of_process(library.MetricsCollector, "poet", dict(bounds))
    metrics = EngineMetrics(collector, ranks=2)
    metrics.finished(result({"finished_reason": "stop", library.MetricNames.TTFT: 1.5}))
    metrics.iteration([stats_row(1), stats_row(1, rank=1, kvCacheStats__reusedBlocks=4)])
    assert metrics.failures == 0
    labels = {"model_name": "poet", "engine_type": "trtllm"}

    def value(name: str, **more: str) -> float | None:
        return REGISTRY.get_sample_value(f"trtllm_{name}", {**labels, **more})

    assert value("request_success_total", finished_reason="stop") == 1
    assert value("time_to_first_token_seconds_bucket", le="2.0") == 1
    assert value("time_to_first_token_seconds_bucket", le="0.5") == 0
    assert value("num_requests_running") == 6
    assert value("num_requests_completed_total") == 2
    assert value("kv_cache_reused_blocks_total") == 14
    assert value("kv_cache_utilization") == 0.4


def test_the_library_refuses_bounds_that_do_not_rise(library: Any) -> None:
    """They are the operator's, and he is told."""
    with pytest.raises(ValueError, match="increasing"):
        collector_of_process(library.MetricsCollector, "poet", {BUCKETS[0]: [2.0, 1.0]})


@pytest.mark.parametrize("name", ["log_request_metrics_dict", "log_metrics_dict"])
def test_a_request_is_counted_under_either_name(name: str) -> None:
    """Releases call it differently, and a name that is not there would be a figure that never comes."""
    taken: list[Any] = []
    collector: Any = SimpleNamespace(log_iteration_stats=taken.append, **{name: taken.append})
    metrics = EngineMetrics(collector)
    metrics.finished(SimpleNamespace(metrics_dict={"finished_reason": "stop"}, candidate_metrics=[]))
    assert taken == [{"finished_reason": "stop"}]
    assert metrics.failures == 0


def test_a_collector_without_either_is_a_failure() -> None:
    """Counted and told, and no reason to end anything."""
    collector: Any = SimpleNamespace(log_iteration_stats=list)
    metrics = EngineMetrics(collector)
    metrics.finished(SimpleNamespace(metrics_dict={"finished_reason": "stop"}, candidate_metrics=[]))
    assert metrics.failures == 1
