"""What each listener tells of one request, in one vocabulary: the names of figures, times in milliseconds.

What a listener has no word for is left out, also where the request did not get far enough for it; how far it
got, all tell by their hops.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from service.telemetry.figures import HopName
from tests.service.telemetry.collectors import attributes_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry.proto.trace.v1.trace_pb2 import Span

Told = dict[str, Any]

# The same name, and the same value, in the line and in the story; in the line nothing stands for None.
_SAME = (
    "outcome",
    "phase",
    "finish_reason",
    "cancel_reason",
    "error_kind",
    "error",
    "failure_cause",
    "reject_reason",
    "refused_field",
    "n",
    "prompt_tokens",
    "cached_tokens",
    "completion_tokens",
    "chunks",
    "engine_id",
    "context_id",
    "trace_id",
)
_TIMES = ("queue", "ttft", "itl_mean", "itl_p50", "cancelled")


def by_story(told: Mapping[str, Any]) -> Told:
    """The kept one, as the trace route gives it."""
    execute: Mapping[str, Any] = next((hop for hop in told["hops"] if hop["name"] == "actor.execute"), {})
    return {
        **{name: told[name] for name in (*_SAME, "preemptions", "is_sampled", "is_moved")},
        **{f"{name}_ms": told[f"{name}_ms"] for name in _TIMES},
        **_hops({hop["name"].removeprefix("actor."): hop["duration_ms"] for hop in told["hops"]}),
        "request_ms": told["duration_ms"],
        "waiting_ms": execute.get("waiting_ms"),
        "finish_reasons": ",".join(reason or "none" for reason in told["finish_reasons"]),
        "predecessor": str(told["predecessor"]),
        "preempted_ms": str(told["preempted_ms"]),
    }


def by_line(line: Mapping[str, Any]) -> Told:
    """The fields of ``request.ended``."""
    seconds = {f"{name}_ms": line.get(f"{name}_s") for name in (*_TIMES, "request")}
    link = {key: line.get(f"predecessor_{key}") for key in ("trace_id", "span_id")}
    return {
        **{name: line.get(name) for name in _SAME},
        **{name: None if value is None else value * 1000 for name, value in seconds.items()},
        "finish_reasons": line.get("finish_reasons", line.get("finish_reason", "none")),
        "preemptions": line.get("preemptions", 0),
        "is_sampled": line.get("is_sampled", False),
        "is_moved": line.get("is_moved", False),
        "predecessor": str(link if any(link.values()) else None),
    }


def by_spans(spans: Mapping[str, Span]) -> Told:
    """All spans of the request, by name."""
    found = {name: attributes_of(span.attributes) for name, span in spans.items()}
    (last,) = (attributes for attributes in found.values() if "actor.outcome" in attributes)
    first, cancel = spans["actor.intake"], spans.get("actor.cancel")
    began_ns = first.start_time_unix_nano
    moments = [event for span in spans.values() for event in span.events]
    at_ms = {event.name: (event.time_unix_nano - began_ns) / 1e6 for event in moments}
    links = [{"trace_id": one.trace_id.hex(), "span_id": one.span_id.hex()} for one in first.links]
    told: Told = {
        "outcome": last["actor.outcome"],
        "phase": last["actor.phase"],
        "cancel_reason": found.get("actor.cancel", {}).get("actor.cancel.reason"),
        "is_moved": last.get("actor.is_moved", False),
        "is_sampled": True,
        "engine_id": found["actor.intake"]["actor.engine_id"],
        "context_id": found["actor.intake"]["actor.context_id"],
        "trace_id": first.trace_id.hex(),
        "predecessor": ",".join(map(str, links)) or "None",
        "request_ms": (max(span.end_time_unix_nano for span in spans.values()) - began_ns) / 1e6,
        "queue_ms": at_ms.get("submitted"),
        "ttft_ms": at_ms.get("first_token"),
        "cancelled_ms": None if cancel is None else (cancel.start_time_unix_nano - began_ns) / 1e6,
        **_hops({hop: _ms(spans[f"actor.{hop}"]) for hop in HopName if f"actor.{hop}" in spans}),
        "reject_reason": last.get("actor.reject_reason"),
        "refused_field": last.get("actor.refused_field"),
    }
    return told | _by_execute(found.get("actor.execute")) | _by_stream(found.get("actor.stream"))


def _by_execute(found: Mapping[str, Any] | None) -> Told:
    if found is None:
        return {}
    return {
        "n": found.get("gen_ai.request.choice.count", 1),
        "prompt_tokens": found["gen_ai.usage.input_tokens"],
        "cached_tokens": found["gen_ai.usage.cache_read.input_tokens"],
        "preemptions": found.get("actor.preemptions", 0),
        "waiting_ms": found["actor.waiting_ms"],
    }


def _by_stream(found: Mapping[str, Any] | None) -> Told:
    if found is None:
        return {"completion_tokens": 0}
    return {
        "completion_tokens": found["gen_ai.usage.output_tokens"],
        "chunks": found["actor.chunks"],
        "itl_mean_ms": found.get("actor.itl_mean_ms"),
        "itl_p50_ms": found.get("actor.itl_p50_ms"),
    }


def by_metrics(counted: Mapping[str, float]) -> Told:
    """What moved from just before the request to just after it, nothing else having been asked."""
    told: Told = {
        "outcome": _label(counted, "requests_total", "outcome"),
        "cancel_reason": _label(counted, "cancellations_total", "reason"),
        "failure_cause": _label(counted, "failed_total", "cause"),
        "reject_reason": _label(counted, "rejected_total", "reason"),
        "is_moved": bool(counted.get("requests_moved_total", 0)),
        "completion_tokens": counted.get('tokens_total{direction="output"}', 0),
        "chunks": counted.get("chunks_total", 0),
        "preemptions": counted.get("engine_preemptions_total", 0),
        "request_ms": _observed(counted, "request_seconds"),
        "queue_ms": _observed(counted, "queue_seconds"),
        "ttft_ms": _observed(counted, "time_to_first_token_seconds"),
        "itl_mean_ms": _observed(counted, "time_per_output_token_seconds"),
        **_hops({hop: _observed(counted, "hop_seconds", f'{{hop="{hop}"}}') for hop in HopName}),
    }
    if told["cancel_reason"] is not None:
        told["phase"] = _label(counted, "cancellations_total", "phase")
    if told["queue_ms"] is not None:
        told["prompt_tokens"] = counted.get('tokens_total{direction="input"}', 0)
        told["cached_tokens"] = counted.get('tokens_total{direction="input_cached"}', 0)
    return told


def _hops(durations_ms: Mapping[str, float | None]) -> Told:
    """Every hop there is; None for one that was not reached."""
    return {f"{hop}_ms": durations_ms.get(hop) for hop in HopName}


def _ms(span: Span) -> float:
    return (span.end_time_unix_nano - span.start_time_unix_nano) / 1e6


def _label(counted: Mapping[str, float], metric: str, label: str) -> str | None:
    """Of the one series that went up, and it by one."""
    moved = [name for name in counted if name.startswith(f"{metric}{{")]
    if not moved:
        return None
    (name,) = moved
    assert counted[name] == 1
    found = re.search(rf'{label}="([^"]+)"', name)
    return None if found is None else found[1]


def _observed(counted: Mapping[str, float], metric: str, labels: str = "") -> float | None:
    """Milliseconds of the one observation; None without one. A sum that did not move is 0."""
    count = counted.get(f"{metric}_count{labels}", 0)
    if not count:
        return None
    assert count == 1
    return counted.get(f"{metric}_sum{labels}", 0.0) * 1000
