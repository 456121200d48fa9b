"""Metrics of an engine on prometheus_client's default registry, from dictionaries that somebody hands in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from prometheus_client import Counter, Gauge, Histogram

from tensorrt_llm.metrics import names

Number = int | float
_POSITION = "token_position"


class MetricsCollector:
    """One a process: a second one finds its names taken. Times in seconds.

    labels: on every metric. Rows of iterations are taken as one ordered stream: rows of several ranks that
    come through one collector distort the counters of reused and missed blocks.
    """

    labelname_finish_reason = "finished_reason"
    labelname_ep_rank = "ep_rank"

    def __init__(  # noqa: PLR0917 - as many as the library's
        self,
        labels: dict[str, str],
        e2e_request_latency_buckets: list[float] | None = None,
        time_to_first_token_buckets: list[float] | None = None,
        time_per_output_token_buckets: list[float] | None = None,
        request_queue_time_buckets: list[float] | None = None,
        request_prefill_time_buckets: list[float] | None = None,
        request_decode_time_buckets: list[float] | None = None,
        request_inference_time_buckets: list[float] | None = None,
    ) -> None:
        """Register every metric. Raises ValueError for wrong buckets and for names that are taken."""
        buckets = (
            *(e2e_request_latency_buckets, time_to_first_token_buckets, time_per_output_token_buckets),
            *(request_queue_time_buckets, request_prefill_time_buckets, request_decode_time_buckets),
            request_inference_time_buckets,
        )
        for each in buckets:
            _refuse_buckets(each)
        self.labels = labels
        self.metric_prefix = "trtllm_"
        self._before = dict.fromkeys(names.CUMULATIVE_COUNTERS, 0)
        self._histograms = {
            name: self._histogram(name, own)
            for name, own in zip(names.REQUEST_HISTOGRAMS, buckets, strict=True)
        }
        others = (*names.OTHER_REQUEST_HISTOGRAMS, "prefill_batch_tokens")
        self._histograms |= {name: self._histogram(name, None) for name in others}
        self._counters = {name: self._counter(name) for name in _counter_names()}
        self._counters["request_success"] = self._counter("request_success", self.labelname_finish_reason)
        self._counters["request_error"] = self._counter("request_error", "http_code")
        self._counters |= {name: self._counter(name, _POSITION) for name in names.POSITION_COUNTERS}
        self._gauges = {name: self._gauge(name) for name in _gauge_names()}
        self._gauges[names.EXPERT_RANK_GAUGE] = self._gauge(names.EXPERT_RANK_GAUGE, self.labelname_ep_rank)

    def log_metrics_dict(self, metrics_dict: Mapping[Any, Any]) -> None:
        """As log_request_metrics_dict: revisions of one line have the one name or the other."""
        self.log_request_metrics_dict(metrics_dict)

    def log_request_metrics_dict(self, metrics_dict: Mapping[Any, Any]) -> None:
        """Record one finished request; without the string key ``finished_reason`` nothing is recorded.

        All other keys are members of MetricNames: a string is not found.
        """
        reason = metrics_dict.get(self.labelname_finish_reason)
        if not reason:
            return
        self._counters["request_success"].labels(**self.labels, finished_reason=reason).inc()
        for name, key in (names.REQUEST_HISTOGRAMS | names.OTHER_REQUEST_HISTOGRAMS).items():
            if metrics_dict.get(key) is not None:
                self._histograms[name].labels(**self.labels).observe(metrics_dict[key])
        for name, key in names.REQUEST_COUNTERS.items():
            self._add(name, metrics_dict.get(key) or 0)
        for name, key in names.POSITION_COUNTERS.items():
            for position, count in enumerate(metrics_dict.get(key) or ()):
                self._counters[name].labels(**self.labels, **{_POSITION: str(position)}).inc(count)

    def log_iteration_stats(self, iteration_stats: Mapping[str, Any]) -> None:
        """Record one row; keys that it does not have leave their metric alone."""
        for part, gauges in names.ROW_GAUGES.items():
            for name, key in gauges.items():
                self._set(name, _part(iteration_stats, part).get(key))
        for part, counters in names.ROW_COUNTERS.items():
            for name, key in counters.items():
                self._add(name, _part(iteration_stats, part).get(key, 0))
        if "iterLatencyMS" in iteration_stats:
            self._set("iteration_latency_seconds", iteration_stats["iterLatencyMS"] / 1000)
        self._log_cache(_part(iteration_stats, "kvCacheStats"))
        self._log_windows(_part(iteration_stats, "kvCacheIterationStats"))
        self._log_prefill(_part(iteration_stats, "inflightBatchingStats"), iteration_stats)

    def log_ep_health_stats(self, ep_health_stats: Mapping[str, Any]) -> bool:
        """Return False: no shape of these numbers was read, so the double records none."""
        return False

    def log_ep_health_unavailable(self) -> None:
        """Say that nothing is known about the experts' ranks."""
        self._set("ep_health_available", 0)

    def log_config_info(
        self,
        model_config: Mapping[str, str] | None = None,
        parallel_config: Mapping[str, str] | None = None,
        speculative_config: Mapping[str, str] | None = None,
        kv_cache_config: Mapping[str, str] | None = None,
    ) -> None:
        """Register and set one gauge for each configuration: its labels are the values. Once a process."""
        configs = (model_config, parallel_config, speculative_config, kv_cache_config)
        for name, config in zip(names.CONFIG_GAUGES, configs, strict=True):
            if config:
                self._gauge(f"{name}_info", *config).labels(**self.labels, **config).set(1)

    def log_request_error(self, http_code: int | str = "") -> None:
        """Count one refused or failed request."""
        self._counters["request_error"].labels(**self.labels, http_code=str(http_code)).inc()

    def _log_cache(self, cache: Mapping[str, Any]) -> None:
        for name, key in names.CUMULATIVE_COUNTERS.items():
            if key in cache:
                self._add(name, max(0, cache[key] - self._before[name]))
                self._before[name] = cache[key]
        if cache.get("maxNumBlocks") and "usedNumBlocks" in cache:
            self._set("kv_cache_utilization", cache["usedNumBlocks"] / cache["maxNumBlocks"])

    def _log_windows(self, windows: Mapping[str, Mapping[str, Any]]) -> None:
        total = {
            key: sum(window.get(key, 0) for window in windows.values())
            for key in (*names.WINDOW_COUNTERS.values(), "secondaryMaxNumBlocks", "secondaryUsedNumBlocks")
        }
        for name, key in names.WINDOW_COUNTERS.items():
            self._add(name, total[key])
        if total["secondaryMaxNumBlocks"]:
            used = total["secondaryUsedNumBlocks"] / total["secondaryMaxNumBlocks"]
            self._set("kv_cache_host_utilization", used)
        if looked_up := total["iterReusedBlocks"] + total["iterMissedBlocks"]:
            self._set("kv_cache_iter_reuse_rate", total["iterReusedBlocks"] / looked_up)

    def _log_prefill(self, batch: Mapping[str, Any], row: Mapping[str, Any]) -> None:
        if batch.get("numCtxTokens"):
            self._histograms["prefill_batch_tokens"].labels(**self.labels).observe(batch["numCtxTokens"])
        if batch and row.get("maxNumActiveRequests"):
            part = batch.get("numContextRequests", 0) / row["maxNumActiveRequests"]
            self._set("prefill_batch_occupancy", part)

    def _add(self, name: str, count: Number) -> None:
        if count > 0:
            self._counters[name].labels(**self.labels).inc(count)

    def _set(self, name: str, value: Number | None) -> None:
        if value is not None:
            self._gauges[name].labels(**self.labels).set(value)

    def _counter(self, name: str, *more: str) -> Counter:
        return Counter(self.metric_prefix + name, name, [*self.labels, *more])

    def _gauge(self, name: str, *more: str) -> Gauge:
        return Gauge(self.metric_prefix + name, name, [*self.labels, *more])

    def _histogram(self, name: str, buckets: Sequence[float] | None) -> Histogram:
        buckets = Histogram.DEFAULT_BUCKETS if buckets is None else buckets
        return Histogram(self.metric_prefix + name, name, [*self.labels], buckets=buckets)


def _refuse_buckets(buckets: Sequence[float] | None) -> None:
    if buckets is not None and (not buckets or any(low >= high for low, high in pairwise(buckets))):
        raise ValueError(f"buckets must not be empty and must be strictly increasing, got {buckets}")


def _counter_names() -> Iterable[str]:
    yield from names.REQUEST_COUNTERS
    yield from (name for counters in names.ROW_COUNTERS.values() for name in counters)
    yield from names.CUMULATIVE_COUNTERS
    yield from names.WINDOW_COUNTERS


def _gauge_names() -> Iterable[str]:
    yield from (name for gauges in names.ROW_GAUGES.values() for name in gauges)
    yield from (*names.OTHER_GAUGES, *names.EXPERT_GAUGES)


def _part(row: Mapping[str, Any], part: str) -> Mapping[str, Any]:
    return row if not part else row.get(part) or {}
