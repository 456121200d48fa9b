"""TensorRT-LLM's own metrics, ``trtllm_*``: its collector, fed by us.

The collector registers its names with Prometheus's default registry, once a process. It takes rows of
statistics as one stream of one engine. With attention DP they are of several ranks, so each row is completed
before it is handed on, and handed on once:

* what a rank has now (requests, blocks, memory) is the sum of what all ranks told last;
* what has been counted since the start (blocks found and missed) is summed the same way: the collector counts
  what is added from row to row, and so adds what was added anywhere;
* what happened in the iteration itself (tokens, finished requests, drafts, its duration) stays the row's own.

``log_config_info`` is not called: no release's signature of it is known for certain.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from threading import Lock
from typing import Any, Protocol

from actors.engines.trtllm.figures.stats_rows import Row, count_of, part_of, rank_of, row_of

_log = logging.getLogger(__name__)

# Keywords of the collector, and names of TensorRT-LLM's ``prometheus_metrics_config``.
BUCKETS = (
    "e2e_request_latency_buckets",
    "time_to_first_token_buckets",
    "time_per_output_token_buckets",
    "request_queue_time_buckets",
    "request_prefill_time_buckets",
    "request_decode_time_buckets",
    "request_inference_time_buckets",
)
ENGINE_TYPE = "trtllm"
# The collector's method for a finished request, in newer releases and in older ones.
_OF_REQUESTS = ("log_request_metrics_dict", "log_metrics_dict")
# Part of a row (empty: the row itself) -> keys.
_SUMMED: Mapping[str, tuple[str, ...]] = {
    "": (
        *("numActiveRequests", "numQueuedRequests", "maxNumActiveRequests"),
        *("gpuMemUsage", "cpuMemUsage", "pinnedMemUsage"),
    ),
    "kvCacheStats": ("maxNumBlocks", "freeNumBlocks", "usedNumBlocks", "reusedBlocks", "missedBlocks"),
    "inflightBatchingStats": (
        *("numContextRequests", "numGenRequests", "numPausedRequests", "numScheduledRequests"),
    ),
}


class Collector(Protocol):
    """``tensorrt_llm.metrics.MetricsCollector``, as far as it is used.

    What takes the dictionary of a finished request has more names than one.
    """

    def log_iteration_stats(self, iteration_stats: dict[str, Any]) -> None:
        """Take in a row."""
        ...


class _OfProcess:
    """The collector, once there is one: a second one finds its names taken."""

    lock = Lock()
    collector: Collector | None = None
    labels: Mapping[str, str] | None = None


def collector_of_process(
    make: Callable[..., Collector], model_name: str, buckets: Mapping[str, list[float] | None]
) -> Collector:
    """The one collector of this process; made now if it is the first. Any thread.

    make: the library's class. buckets: by BUCKETS, in seconds; missing or None is as the library has them.
    Raises ValueError for buckets that do not rise, for a name that is not known, and for another model than
    that of the first call: its metrics would be told under the wrong name.
    """
    unknown = sorted(buckets.keys() - set(BUCKETS))
    if unknown:
        raise ValueError(f"prometheus_metrics_config.{unknown[0]} is not one of {', '.join(BUCKETS)}")
    labels = {"model_name": model_name, "engine_type": ENGINE_TYPE}
    with _OfProcess.lock:
        if _OfProcess.collector is None:
            given = {name: list(bounds) for name, bounds in buckets.items() if bounds is not None}
            _OfProcess.collector, _OfProcess.labels = make(labels, **given), labels
        elif _OfProcess.labels != labels:
            raise ValueError("this process already has metrics of another model")
        return _OfProcess.collector


class EngineMetrics:
    """Feeds the collector. `finished` belongs to the event loop, `iteration` to the thread that polls.

    Nothing is raised: a figure that is lost harms nobody. failures: what the collector did not take.
    """

    def __init__(self, collector: Collector, ranks: int = 1) -> None:
        self._collector = collector
        named: list[Any] = [getattr(collector, name, None) for name in _OF_REQUESTS]
        self._take_request: Any = next((each for each in named if each is not None), _lose)
        # By rank: what it told last, by part and key.
        self._known: list[dict[tuple[str, str], int]] = [{} for _ in range(ranks)]
        self.failures = 0

    def finished(self, result: Any) -> None:
        """Once for each request that has finished, with the library's result.

        A request with several choices has a dictionary for each of them, and one more for all.
        """
        self._try(self._log_request, result)

    def iteration(self, rows: Iterable[object]) -> None:
        """Rows of statistics, oldest first. Those of ranks that do not exist are left out."""
        for each in rows:
            row = row_of(each)
            rank = None if row is None else rank_of(row, len(self._known))
            if row is not None and rank is not None:
                self._try(self._log_row, row, rank)

    def _log_request(self, result: Any) -> None:
        found: list[Any] = getattr(result, "candidate_metrics", None) or [
            getattr(result, "metrics_dict", None)
        ]
        for metrics in found:
            if metrics:
                self._take_request(metrics)

    def _log_row(self, row: Row, rank: int) -> None:
        if len(self._known) == 1:
            self._collector.log_iteration_stats(dict(row))
            return
        for part, names in _SUMMED.items():
            source = part_of(row, part) if part else row
            told = {(part, name): count_of(source, name) for name in names}
            self._known[rank].update({key: count for key, count in told.items() if count is not None})
        self._collector.log_iteration_stats(self._completed(row))

    def _completed(self, row: Row) -> dict[str, Any]:
        """A row with sums over all ranks; only what it tells itself."""
        whole = {**row, **self._sums("", row)}
        for part in filter(None, _SUMMED):
            if source := part_of(row, part):
                whole[part] = {**source, **self._sums(part, source)}
        cache = part_of(whole, "kvCacheStats")
        reused, missed = count_of(cache, "reusedBlocks"), count_of(cache, "missedBlocks")
        if reused is not None and missed is not None and reused + missed:
            whole["kvCacheStats"] = {**cache, "cacheHitRate": reused / (reused + missed)}
        return whole

    def _sums(self, part: str, source: Row) -> dict[str, int]:
        names = [name for name in _SUMMED[part] if name in source]
        return {name: sum(known.get((part, name), 0) for known in self._known) for name in names}

    def _try(self, log: Callable[..., None], *arguments: Any) -> None:
        try:
            log(*arguments)
        except Exception as exc:
            self.failures += 1
            if self.failures == 1:
                _log.warning("TensorRT-LLM's metrics did not take a figure (%s)", type(exc).__name__)


def _lose(_metrics: dict[Any, Any]) -> None:
    """A collector that takes no request under any name that is known."""
    raise AttributeError("no method for the metrics of a request")
