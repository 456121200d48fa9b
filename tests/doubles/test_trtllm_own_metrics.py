"""Promises of the double's collector of metrics: what it takes, under which keys, what it does not notice."""

import importlib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from prometheus_client import REGISTRY

from tests.doubles.own_metrics import without_own_metrics
from tests.doubles.trtllm_site import double_on_path

LABELS = {"model_name": "m", "engine_type": "trtllm"}
Make = Callable[..., Any]


@pytest.fixture(scope="module")
def api() -> Iterator[ModuleType]:
    """The module of the metrics."""
    with double_on_path():
        yield importlib.import_module("tensorrt_llm.metrics")


@pytest.fixture
def make(api: ModuleType) -> Iterator[Make]:
    """Make collectors, and leave the registry as it was."""
    with without_own_metrics():
        yield lambda **buckets: api.MetricsCollector(LABELS, **buckets)


def value(name: str, **more: str) -> float | None:
    """Return a sample of the default registry, None when there is none."""
    return REGISTRY.get_sample_value(f"trtllm_{name}", LABELS | more)


def test_a_second_collector_finds_its_names_taken(make: Make) -> None:
    """One process has one collector."""
    make()
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        make()


@pytest.mark.parametrize("buckets", [[], [1.0, 1.0], [2.0, 1.0]])
def test_buckets_must_rise(make: Make, buckets: list[float]) -> None:
    """An empty list and one that does not rise are refused before anything is registered."""
    with pytest.raises(ValueError, match="strictly increasing"):
        make(time_to_first_token_buckets=buckets)
    make(time_to_first_token_buckets=[1.0, 2.0])


def test_a_request_counts_only_with_its_reason(api: ModuleType, make: Make) -> None:
    """Numbers of a request that has not finished are left alone."""
    collector, names = make(), api.MetricNames
    collector.log_metrics_dict({names.TTFT: 0.5})
    assert value("time_to_first_token_seconds_count") is None
    collector.log_metrics_dict({names.TTFT: 0.5, names.PROMPT_TOKENS: 3, "finished_reason": "stop"})
    assert value("time_to_first_token_seconds_sum") == 0.5
    assert value("prompt_tokens_total") == 3
    assert value("request_success_total", finished_reason="stop") == 1


def test_a_request_is_recorded_under_either_name(make: Make) -> None:
    """Revisions differ in the method's name; both do the same here."""
    collector = make()
    collector.log_metrics_dict({"finished_reason": "stop"})
    collector.log_request_metrics_dict({"finished_reason": "stop"})
    assert value("request_success_total", finished_reason="stop") == 2


def test_strings_are_no_names_of_metrics(make: Make) -> None:
    """A dictionary that came through JSON records its reason and nothing else."""
    make().log_metrics_dict({"ttft": 0.5, "finished_reason": "length"})
    assert value("time_to_first_token_seconds_count") is None
    assert value("request_success_total", finished_reason="length") == 1


def test_positions_of_drafts_are_counted_apart(api: ModuleType, make: Make) -> None:
    """Each place of a draft has its own series."""
    counts = {api.MetricNames.SPEC_DEC_DRAFTED_PER_POS: [4, 2], "finished_reason": "stop"}
    make().log_metrics_dict(counts)
    assert value("spec_decode_drafted_tokens_total", token_position="1") == 2


def test_a_row_sets_what_it_has(make: Make) -> None:
    """Gauges follow the latest row; a key that is missing leaves its metric alone."""
    collector = make()
    collector.log_iteration_stats({"numActiveRequests": 2, "iterLatencyMS": 20, "numCompletedRequests": 1})
    collector.log_iteration_stats({"numQueuedRequests": 1, "numCompletedRequests": 2})
    assert (value("num_requests_running"), value("num_requests_waiting")) == (2, 1)
    assert value("iteration_latency_seconds") == 0.02
    assert value("num_requests_completed_total") == 3


def test_the_parts_of_a_row_are_read(make: Make) -> None:
    """Cache, batch and windows: parts of what there is, and sums over the windows."""
    make().log_iteration_stats(
        {
            "maxNumActiveRequests": 4,
            "kvCacheStats": {"maxNumBlocks": 10, "usedNumBlocks": 4},
            "inflightBatchingStats": {"numContextRequests": 1, "numCtxTokens": 32},
            "kvCacheIterationStats": {
                "64": {"iterReusedBlocks": 3, "secondaryMaxNumBlocks": 8, "secondaryUsedNumBlocks": 2},
                "32": {"iterMissedBlocks": 1},
            },
        }
    )
    assert value("kv_cache_utilization") == 0.4
    assert value("prefill_batch_occupancy") == 0.25
    assert value("prefill_batch_tokens_sum") == 32
    assert value("kv_cache_iter_reused_blocks_total") == 3
    assert value("kv_cache_iter_reuse_rate") == 0.75
    assert value("kv_cache_host_utilization") == 0.25


def test_rows_of_several_ranks_distort_the_counters(make: Make) -> None:
    """The trap of one collector for two ranks: each change between them counts as growth."""
    collector = make()
    for reused in (100, 10, 100, 10):
        collector.log_iteration_stats({"kvCacheStats": {"reusedBlocks": reused}})
    assert value("kv_cache_reused_blocks_total") == 190


def test_errors_and_configurations_are_labelled(make: Make) -> None:
    """By the answer's code, and by the values of the configuration."""
    collector = make()
    collector.log_request_error(429)
    collector.log_config_info(model_config={"dtype": "bf16"})
    collector.log_ep_health_unavailable()
    assert value("request_error_total", http_code="429") == 1
    assert value("model_config_info", dtype="bf16") == 1
    assert value("ep_health_available") == 0
    assert collector.log_ep_health_stats({}) is False
