"""A span for each hop of a request, under the span of whoever called us.

Nothing is recorded unless the caller's ``traceparent`` says so; then the hops become spans at the
request's end, from the times in its story. Only the id of ``actor.execute`` is drawn earlier, when the
engine gets the request: it stands in the headers the engine is given.

The spans are built as the SDK's exporters want them (`ReadableSpan`) and not through its tracer, whose
spans are made for code that is still running: a sixth of the price, measured, with the same bytes
at the collector (docs/decisions/0009).
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NamedTuple

from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, Status, TraceFlags, format_span_id

from protocols.telemetry import AbortResult, WorkerState
from service.telemetry.figures import HopName
from service.telemetry.span_attributes import (
    LATE_ABORT,
    UNSET,
    Attributes,
    RequestAttributes,
    ids_of,
    of_cancel,
    status_of,
)
from service.telemetry.span_events import Moment, cancelled_s_of, moments_of
from service.telemetry.traceparent import HEADER, may_be_sampled, parse_traceparent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from protocols.telemetry import AbortStory, DrainReport, RequestStory
    from protocols.trace_link import TraceLink
    from service.telemetry.exporting import Pipeline
    from service.telemetry.figures import Figures

_SCOPE = "dynamo-actor-worker"
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
# Of a pod: the variables of Dynamo's operator, from the downward API, and what the conventions call each.
_OF_A_POD = {
    "POD_NAME": "k8s.pod.name",
    "POD_NAMESPACE": "k8s.namespace.name",
    "POD_UID": "k8s.pod.uid",
    "NODE_NAME": "k8s.node.name",
}


def resource_of(
    version: str, instance_id: str, namespace: str | None = None, environ: Mapping[str, str] = os.environ
) -> Resource:
    """Who we are, for the collector. The operator's variables win.

    Without ``OTEL_SERVICE_NAME`` the name is the framework's own default: its spans and ours come from one
    process and are one service. namespace: Dynamo's. environ: where a pod's variables are read.
    """
    ours = {"service.name": "dynamo", "service.version": version, "service.instance.id": instance_id}
    if namespace is not None:
        ours["service.namespace"] = namespace
    ours.update({name: environ[variable] for variable, name in _OF_A_POD.items() if environ.get(variable)})
    return Resource.create({**ours, **OTELResourceDetector().detect().attributes})


class Spans:
    """Belongs to the event loop; `shutdown` to any thread.

    clock, wall: two clocks read together once a request, so that a machine that slept does not shift them.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        resource: Resource,
        attributes: RequestAttributes,
        *,
        has_roots: bool,
        clock: Callable[[], int] = time.monotonic_ns,
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        self._pipeline = pipeline
        self._resource = resource
        self._attributes = attributes
        self._has_roots = has_roots
        self._clock = clock
        self._wall = wall
        self._ids = RandomIdGenerator()
        self._scope = InstrumentationScope(_SCOPE, attributes.version)
        # Of the drain that is on, or of the last one.
        self._drain_began_s: float | None = None

    def request_submitted(
        self, trace_headers: Mapping[str, str]
    ) -> tuple[tuple[tuple[str, str], ...], object]:
        """Headers for the engine, and the id of ``actor.execute``; unsampled ones go on as they came."""
        parent = parse_traceparent(trace_headers) if may_be_sampled(trace_headers) else None
        if parent is None or not parent.is_sampled:
            return tuple(trace_headers.items()), None
        span_id = self._ids.generate_span_id()
        named = parent.header_of(format_span_id(span_id))
        headers = tuple((key, named if key == HEADER else value) for key, value in trace_headers.items())
        return headers, span_id

    def request_ended(self, story: RequestStory, figures: Figures) -> None:
        """Build and send the spans of one request, all of them or none."""
        parent = figures.trace
        if parent is None or not parent.is_sampled:
            return
        above = _remote(parent.trace_id, parent.span_id)
        offset_ns = self._offset_ns()
        self._pipeline.send([self._build(part, above, offset_ns) for part in self._parts(story, figures)])

    def abort_told(self, abort: AbortStory) -> None:
        """Send the span of an abort that is over, or that the engine did not confirm in time.

        It is younger than the request's outcome: the caller has long gone, and the engine lets go now.
        """
        parent = parse_traceparent(abort.trace_headers)
        if abort.result is AbortResult.ASKED or parent is None or not parent.is_sampled:
            return
        attributes = {**ids_of(abort), "actor.abort.result": abort.result.value}
        status = UNSET if abort.result is AbortResult.CONFIRMED else LATE_ABORT
        part = _Part("actor.abort", abort.asked_s, abort.at_s, attributes, status=status)
        above = _remote(parent.trace_id, parent.span_id)
        self._pipeline.send([self._build(part, above, self._offset_ns())])

    def state_changed(self, state: WorkerState) -> None:
        """A drain begins: its span will start here."""
        if state is WorkerState.DRAINING:
            self._drain_began_s = self._clock() / 1e9

    def drain_ended(self, report: DrainReport) -> None:
        """Send the span of the drain: the root of a trace of its own."""
        if not self._has_roots or self._drain_began_s is None:
            return
        attributes: Attributes = {
            "actor.drain.live_at_start": report.live_at_start,
            "actor.drain.completed": report.completed,
            "actor.drain.ended_otherwise": report.ended_otherwise,
            "actor.drain.moved": report.moved,
            "actor.drain.interrupted": report.interrupted,
        }
        part = _Part("actor.drain", self._drain_began_s, self._clock() / 1e9, attributes)
        self._pipeline.send([self._build(part, None, self._offset_ns())])

    def shutdown(self) -> None:
        """See `Pipeline.shutdown`."""
        self._pipeline.shutdown()

    def _parts(self, story: RequestStory, figures: Figures) -> Iterator[_Part]:
        last = figures.hops[-1]
        ids, moments = ids_of(story), moments_of(story, figures)
        for hop in figures.hops:
            yield _Part(
                f"actor.{hop.name.value}",
                hop.start_s,
                hop.end_s,
                {**ids, **self._attributes.of_hop(hop, story, figures)},
                status=status_of(story) if hop is last else UNSET,
                span_id=_execute_id(story) if hop.name is HopName.EXECUTE else None,
                moments=[moment for moment in moments if moment.hop is hop.name],
                link=story.predecessor if hop.name is HopName.INTAKE else None,
            )
        if story.cancel_reason is not None:
            began_s = cancelled_s_of(figures)
            yield _Part("actor.cancel", began_s, last.end_s, {**ids, **of_cancel(story)})

    def _build(self, part: _Part, above: SpanContext | None, offset_ns: int) -> ReadableSpan:
        trace_id = self._ids.generate_trace_id() if above is None else above.trace_id
        span_id = part.span_id or self._ids.generate_span_id()
        return ReadableSpan(
            part.name,
            context=SpanContext(trace_id, span_id, is_remote=False, trace_flags=_SAMPLED),
            parent=above,
            resource=self._resource,
            attributes=part.attributes,
            events=[Event(name, found, offset_ns + _ns(at_s)) for _, at_s, name, found in part.moments],
            links=() if part.link is None else (Link(_remote(*part.link)),),
            status=part.status,
            start_time=offset_ns + _ns(part.start_s),
            end_time=offset_ns + _ns(part.end_s),
            instrumentation_scope=self._scope,
        )

    def _offset_ns(self) -> int:
        """Between the graph's clock and the wall's, now."""
        return self._wall() - self._clock()


class _Part(NamedTuple):
    """One span to be; monotonic seconds. link: a span of another life of the same request."""

    name: str
    start_s: float
    end_s: float
    attributes: Attributes
    status: Status = UNSET
    span_id: int | None = None
    moments: Sequence[Moment] = ()
    link: TraceLink | None = None


def _execute_id(story: RequestStory) -> int | None:
    """As `Spans.request_submitted` drew it."""
    return story.execute_context if isinstance(story.execute_context, int) else None


def _remote(trace_id: str, span_id: str) -> SpanContext:
    """A sampled span of another process."""
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=_SAMPLED)


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
