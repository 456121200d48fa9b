"""Spans at a real collector, over both protocols: right parents, right times, right words."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from protocols.telemetry import Outcome, Phase, WorkerState
from tests.service.telemetry.collectors import attributes_of
from tests.service.telemetry.tales import (
    PARENT_ID,
    SAMPLED,
    TRACE_ID,
    UNSAMPLED,
    outcome_of,
    report_of_drain,
    tale,
    tale_of_each,
)

if TYPE_CHECKING:
    from opentelemetry.proto.trace.v1.trace_pb2 import Span

    from protocols.telemetry import RequestStory
    from service.telemetry.recorder import Recorder
    from tests.service.telemetry.conftest import NewRecorder, OpenCollector

pytestmark = pytest.mark.usefixtures("lines")

_HOPS = ["actor.intake", "actor.resolve", "actor.execute", "actor.stream"]
_UNSET, _ERROR = 0, 2
# OTLP's flags: that it is known whether the parent is in another process, and that it is.
_FLAGS = 0x100 | 0x200


def _served(recorder: Recorder, **changes: Any) -> dict[str, str]:
    """One request goes to the engine and ends; the headers the engine got."""
    headers = changes.get("trace_headers")
    to_engine, context = recorder.request_submitted(headers)
    recorder.request_ended(tale(execute_context=context, **changes))
    return dict(to_engine)


def test_every_hop_is_a_span_under_the_caller(open_collector: OpenCollector, new_recorder: NewRecorder):
    """Siblings, in order, touching each other, as long as the story says."""
    with open_collector() as collector:
        recorder = new_recorder(_environ())
        before_ns = time.time_ns() - time.monotonic_ns()
        _served(recorder, trace_headers=SAMPLED)
        after_ns = time.time_ns() - time.monotonic_ns()
        recorder.shutdown()
        spans = collector.spans
    assert list(spans) == _HOPS
    for span in spans.values():
        assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE_ID, PARENT_ID)
        assert (span.kind, span.status.code, span.flags) == (1, _UNSET, _FLAGS)
    assert len({span.span_id for span in spans.values()}) == 4
    assert [_duration_s(span) for span in spans.values()] == [0.0625, 0.0625, 0.375, 2.0]
    start_ns = [span.start_time_unix_nano for span in spans.values()]
    assert [(start - start_ns[0]) / 1e9 for start in start_ns] == [0.0, 0.0625, 0.125, 0.5]
    low, high = sorted((before_ns, after_ns))
    assert low - 10_000_000 <= start_ns[0] - 100 * 10**9 <= high + 10_000_000


def test_attributes_of_a_served_request(open_collector: OpenCollector, new_recorder: NewRecorder):
    """GenAI names where there are some; the request's end on its last hop."""
    with open_collector() as collector:
        recorder = new_recorder(_environ(), model="smollm2-135m")
        _served(recorder, trace_headers=SAMPLED, finish_reason="length", n=2, completion_tokens=18, chunks=5)
        recorder.shutdown()
        found = {name: attributes_of(span.attributes) for name, span in collector.spans.items()}
    ids = {"actor.engine_id": 7, "actor.context_id": "ctx-7"}
    inference = {
        "gen_ai.operation.name": "text_completion",
        "gen_ai.provider.name": "dynamo_actor.synthetic",
        "gen_ai.request.model": "smollm2-135m",
    }
    assert found == {
        "actor.intake": ids,
        "actor.resolve": ids,
        "actor.execute": {
            **ids,
            **inference,
            "gen_ai.usage.input_tokens": 12,
            "gen_ai.usage.cache_read.input_tokens": 4,
            "gen_ai.request.choice.count": 2,
            "actor.waiting_ms": 125.0,
        },
        "actor.stream": {
            **ids,
            **inference,
            "gen_ai.usage.output_tokens": 18,
            "gen_ai.response.time_to_first_chunk": 0.5,
            "gen_ai.response.finish_reasons": ["length", "length"],
            "actor.chunks": 5,
            "actor.itl_mean_ms": 250.0,
            "actor.outcome": "completed",
            "actor.phase": "decode",
        },
    }


def test_the_engine_works_below_execute(open_collector: OpenCollector, new_recorder: NewRecorder):
    """Its headers name that hop's span, the caller's trace and flags; the others go on untouched."""
    others = {"request-id": "r-1", "tracestate": "a=b"}
    with open_collector() as collector:
        recorder = new_recorder(_environ())
        to_engine = _served(recorder, trace_headers={**SAMPLED, **others})
        recorder.shutdown()
        span_id = collector.spans["actor.execute"].span_id.hex()
    assert to_engine == {"traceparent": f"00-{TRACE_ID}-{span_id}-01", **others}


@pytest.mark.parametrize("headers", [UNSAMPLED, None, {"request-id": "r-1"}, {"traceparent": "garbage"}])
def test_nobody_asked_nothing_recorded(
    open_collector: OpenCollector, new_recorder: NewRecorder, headers: dict[str, str] | None
):
    """Not sampled, not traced, not readable: no span, and the engine gets what came in."""
    with open_collector() as collector:
        recorder = new_recorder(_environ())
        assert _served(recorder, trace_headers=headers) == (headers or {})
        recorder.shutdown()
        assert collector.requests == []


@pytest.mark.parametrize("headers", [SAMPLED, UNSAMPLED, None])
def test_without_export_headers_go_on_as_they_came(new_recorder: NewRecorder, headers: dict[str, str] | None):
    """There is no span of ours that the engine could work below."""
    assert _served(new_recorder(), trace_headers=headers) == (headers or {})


@pytest.mark.parametrize("story", tale_of_each(), ids=outcome_of)
def test_every_ending_closes_its_spans(
    open_collector: OpenCollector, new_recorder: NewRecorder, story: RequestStory
):
    """As many hops as were reached; an error only where it was one; a cancel is a span of its own."""
    with open_collector() as collector:
        recorder = new_recorder(_environ())
        recorder.request_ended(structs.replace(story, trace_headers=SAMPLED))
        recorder.shutdown()
        spans = collector.spans
    cancel = spans.pop("actor.cancel", None)
    assert list(spans) == _HOPS[: len(spans)]
    *earlier, last = spans.values()
    told = attributes_of(last.attributes)
    is_fine = story.outcome in (Outcome.COMPLETED, Outcome.STOPPED_BY_FRONTEND, Outcome.CANCELLED)
    assert last.status.code == (_UNSET if is_fine else _ERROR)
    assert told.get("error.type") == story.error_kind
    assert (told["actor.outcome"], told["actor.phase"]) == (story.outcome.value, story.phase.value)
    assert told.get("cancelled", False) is (story.cancel_reason is not None)
    assert all(span.status.code == _UNSET for span in earlier)
    assert (cancel is not None) is (story.cancel_reason is not None)
    if cancel is not None and story.cancel_reason is not None:
        assert attributes_of(cancel.attributes)["actor.cancel.reason"] == story.cancel_reason.value
    for span in (*earlier, last, *filter(None, [cancel])):
        found = attributes_of(span.attributes)
        assert (found["actor.engine_id"], found["actor.context_id"]) == (story.engine_id, "ctx-7")


def test_two_requests_of_one_trace_stay_apart(open_collector: OpenCollector, new_recorder: NewRecorder):
    """Each has its own spans under its own parent."""
    parents = [f"{number:016x}" for number in (1, 2)]
    with open_collector() as collector:
        recorder = new_recorder(_environ())
        for number, parent in enumerate(parents):
            _served(recorder, engine_id=number, trace_headers={"traceparent": f"00-{TRACE_ID}-{parent}-01"})
        recorder.shutdown()
        found = [
            (span.parent_span_id.hex(), attributes_of(span.attributes)["actor.engine_id"])
            for span in collector.all_spans
        ]
        ids = {span.span_id for span in collector.all_spans}
    assert found == [(parents[0], 0)] * 4 + [(parents[1], 1)] * 4
    assert len(ids) == 8


def test_a_probe_leaves_no_spans(open_collector: OpenCollector, new_recorder: NewRecorder):
    """A health check is nobody's request."""
    with open_collector() as collector:
        recorder = new_recorder(_environ())
        _served(recorder, is_probe=True, trace_headers=SAMPLED)
        recorder.shutdown()
        assert collector.requests == []


def test_a_drain_is_a_trace_of_its_own(open_collector: OpenCollector, new_recorder: NewRecorder):
    """How long, how many were live, and what became of them."""
    with open_collector() as collector:
        recorder = new_recorder(_environ())
        recorder.state_changed(WorkerState.DRAINING)
        recorder.drain_ended(report_of_drain())
        recorder.shutdown()
        (span,) = collector.all_spans
    assert (span.name, span.parent_span_id) == ("actor.drain", b"")
    assert span.end_time_unix_nano >= span.start_time_unix_nano
    assert attributes_of(span.attributes) == {
        "actor.drain.live_at_start": 6,
        "actor.drain.completed": 3,
        "actor.drain.ended_otherwise": 1,
        "actor.drain.moved": 1,
        "actor.drain.interrupted": 2,
    }


def test_roots_are_not_recorded_when_the_operator_records_none(
    open_collector: OpenCollector, new_recorder: NewRecorder
):
    """Ratio 0 means that nothing starts a trace here."""
    with open_collector() as collector:
        recorder = new_recorder({**_environ(), "OTEL_TRACES_SAMPLE_RATIO": "0"})
        recorder.state_changed(WorkerState.DRAINING)
        recorder.drain_ended(report_of_drain())
        recorder.shutdown()
        assert collector.requests == []


def test_the_resource_names_this_worker(
    open_collector: OpenCollector, new_recorder: NewRecorder, monkeypatch: pytest.MonkeyPatch
):
    """The framework's service name unless the operator gave one; his attributes win."""
    monkeypatch.setenv("OTEL_SERVICE_NAME", "chat")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.pod.name=pod-1,service.version=his")
    with open_collector() as collector:
        recorder = new_recorder(_environ(), instance_id="instance-1")
        _served(recorder, trace_headers=SAMPLED)
        recorder.shutdown()
        resource = collector.resource
    assert {name: value for name, value in resource.items() if not name.startswith("telemetry.")} == {
        "service.name": "chat",
        "service.version": "his",
        "service.instance.id": "instance-1",
        "k8s.pod.name": "pod-1",
    }


def test_the_resource_says_where_the_worker_runs(open_collector: OpenCollector, new_recorder: NewRecorder):
    """Dynamo's namespace, and the pod by the operator's variables; one that is empty says nothing."""
    of_a_pod = {"POD_NAME": "pod-1", "POD_NAMESPACE": "team", "POD_UID": "uid-1", "NODE_NAME": ""}
    with open_collector() as collector:
        recorder = new_recorder({**_environ(), **of_a_pod}, namespace="dynamo-v2")
        _served(recorder, trace_headers=SAMPLED)
        recorder.shutdown()
        resource = collector.resource
    places = ("service.namespace", "k8s.")
    assert {name: value for name, value in resource.items() if name.startswith(places)} == {
        "service.namespace": "dynamo-v2",
        "k8s.pod.name": "pod-1",
        "k8s.namespace.name": "team",
        "k8s.pod.uid": "uid-1",
    }


def test_what_the_operator_says_of_a_place_wins(
    open_collector: OpenCollector, new_recorder: NewRecorder, monkeypatch: pytest.MonkeyPatch
):
    """Over Dynamo's namespace and over the pod's own variables."""
    said = {"service.namespace": "chat", "k8s.pod.name": "his"}
    monkeypatch.setenv(
        "OTEL_RESOURCE_ATTRIBUTES", ",".join(f"{name}={value}" for name, value in said.items())
    )
    with open_collector() as collector:
        recorder = new_recorder({**_environ(), "POD_NAME": "pod-1"}, namespace="dynamo")
        _served(recorder, trace_headers=SAMPLED)
        recorder.shutdown()
        resource = collector.resource
    assert {name: resource[name] for name in said} == said


def test_a_worker_without_a_name_is_the_frameworks_service(
    open_collector: OpenCollector, new_recorder: NewRecorder
):
    """Its spans and ours come from one process."""
    with open_collector() as collector:
        recorder = new_recorder(_environ())
        _served(recorder, trace_headers=SAMPLED)
        recorder.shutdown()
        assert collector.resource["service.name"] == "dynamo"


def test_a_refused_request_can_be_seen(open_collector: OpenCollector, new_recorder: NewRecorder):
    """One hop, an error with its kind, under the caller."""
    with open_collector() as collector:
        recorder = new_recorder(_environ())
        story = tale(
            Outcome.REFUSED,
            Phase.RESOLVING,
            admitted_s=None,
            error_kind="InvalidRequest",
            trace_headers=SAMPLED,
        )
        recorder.request_ended(story)
        recorder.shutdown()
        (span,) = collector.all_spans
    assert (span.name, span.status.code, span.parent_span_id.hex()) == ("actor.intake", _ERROR, PARENT_ID)
    assert attributes_of(span.attributes)["error.type"] == "InvalidRequest"


def _environ() -> dict[str, str]:
    import os

    return dict(os.environ)


def _duration_s(span: Span) -> float:
    return (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9
