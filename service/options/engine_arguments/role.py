"""What this worker does of a request, and what it tells about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from protocols.spec import Stage

if TYPE_CHECKING:
    from service.options.framework import FrameworkFacts
    from service.options.resolve import Resolution

_STAGES = {"prefill": Stage.PREFILL, "decode": Stage.DECODE}
# Spellings of upstream that meant events and metrics at once.
_BOTH = (
    "--publish-events-and-metrics",
    "--no-publish-events-and-metrics",
    "DYN_TRTLLM_PUBLISH_EVENTS_AND_METRICS",
)


@dataclass(frozen=True, slots=True)
class Publishing:
    """has_kv_events: routers are told of KV blocks. has_metrics: TensorRT-LLM's metrics are shown."""

    has_kv_events: bool
    has_metrics: bool


def role_of(resolution: Resolution) -> Stage:
    """The role; `agg` and `pd` mean the whole request."""
    return _STAGES.get(resolution.get("disaggregation_mode", str), Stage.WHOLE)


def publishing_of(resolution: Resolution, framework: FrameworkFacts) -> Publishing:
    """Up to framework 1.5 events bring the metrics with them; 1.6 has a switch for each.

    Upstream's old spelling means both in every version, and ``--publish-metrics`` always has the last word.
    """
    events, metrics = resolution["publish_kv_events"], resolution["publish_metrics"]
    means_both = not framework.is_since_1_6 or events.source.name in _BOTH
    has_events = events.value is True
    has_metrics = metrics.value is True if metrics.is_given else has_events and means_both
    return Publishing(has_events, has_metrics)
