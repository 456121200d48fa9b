"""The numbers of one finished sequence, as the metrics collector takes them. Times in seconds."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tensorrt_llm._double.wire import Result
from tensorrt_llm.executor.outputs import CompletionOutput
from tensorrt_llm.metrics import MetricNames


def metrics_of(output: CompletionOutput, result: Result, prompt: Sequence[int]) -> dict[object, object]:
    """Keyed by `MetricNames`, but for the finish reason. What belongs to the prompt: first sequence only."""
    assert result.request_perf_metrics is not None
    moments = result.request_perf_metrics.timing_metrics
    arrival, first = moments.arrival_time.total_seconds(), moments.first_token_time.total_seconds()
    scheduled, last = moments.first_scheduled_time.total_seconds(), moments.last_token_time.total_seconds()
    count = output.length
    metrics: dict[object, object] = {
        "finished_reason": output.finish_reason,
        MetricNames.ARRIVAL_TIMESTAMP: time.time() - (last - arrival),
        MetricNames.TTFT: first - arrival,
        MetricNames.E2E: last - arrival,
        MetricNames.REQUEST_QUEUE_TIME: scheduled - arrival,
        MetricNames.PREFILL_TIME: first - scheduled,
        MetricNames.DECODE_TIME: last - first,
        MetricNames.INFERENCE_TIME: last - scheduled,
        MetricNames.GENERATION_TOKENS: count,
    }
    if count > 1:
        metrics[MetricNames.TPOT] = (last - first) / (count - 1)
    if output.index == 0:
        metrics[MetricNames.PROMPT_TOKENS] = len(prompt)
        metrics[MetricNames.PROMPT_CACHE_CACHED_TOKENS] = result.cached_tokens
    return metrics
