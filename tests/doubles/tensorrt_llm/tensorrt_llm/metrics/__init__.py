"""The library's own metrics."""

from tensorrt_llm.metrics.collector import MetricsCollector
from tensorrt_llm.metrics.enums import MetricNames, RequestEventTiming

__all__ = ["MetricNames", "MetricsCollector", "RequestEventTiming"]
