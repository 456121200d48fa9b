"""When TensorRT-LLM did what with a request, by its own clock: only the spans in between are used."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from math import inf
from typing import Any, cast

from protocols.steps import EngineTiming


def timing_of(output: Any) -> EngineTiming | None:
    """Of one ``CompletionOutput``, or of a result; None where the engine did not measure. Never raises.

    Moments that did not come are 0 there, and a span between moments in the wrong order is none.
    """
    moments = getattr(getattr(output, "request_perf_metrics", None), "timing_metrics", None)
    timing = _of_metrics(getattr(output, "metrics_dict", None)) if moments is None else _of_moments(moments)
    return None if timing == EngineTiming() else timing


def _of_moments(moments: object) -> EngineTiming:
    arrived, scheduled = _moment(moments, "arrival_time"), _moment(moments, "first_scheduled_time")
    first, last = _moment(moments, "first_token_time"), _moment(moments, "last_token_time")
    sent = _moment(moments, "kv_cache_transfer_start")
    return EngineTiming(
        queued_s=_span(arrived, scheduled),
        prefill_s=_span(scheduled, first),
        decode_s=_span(first, last),
        transfer_s=_span(sent, _moment(moments, "kv_cache_transfer_end")),
    )


def _of_metrics(metrics: object) -> EngineTiming:
    """Members of an enum are the keys; their names are the same in all releases, their values are not."""
    if not isinstance(metrics, Mapping):
        return EngineTiming()
    found = cast("Mapping[object, object]", metrics)
    named = {getattr(key, "name", None): _seconds(value) for key, value in found.items()}
    return EngineTiming(
        queued_s=named.get("REQUEST_QUEUE_TIME"),
        prefill_s=named.get("PREFILL_TIME"),
        decode_s=named.get("DECODE_TIME"),
    )


def _moment(moments: object, name: str) -> float | None:
    return _seconds(getattr(moments, name, None)) or None


def _span(begin: float | None, end: float | None) -> float | None:
    return None if begin is None or end is None or end < begin else end - begin


def _seconds(value: object) -> float | None:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < inf else None
