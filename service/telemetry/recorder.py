"""The graph's listener: hears once, tells metrics, stories, log and spans.

A listener that breaks (a full disk behind the log, a bug) is counted and named; the graph never
notices. Not guarded is what is told once a step or a chunk, and only adds to counters: `step_done`,
`count_chunk`, `kv_events`, `on_bound`. Health probes reach the log at DEBUG and nothing else.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING

from protocols.bounds import Bound
from protocols.engine import EngineCapabilities
from protocols.telemetry import (
    AbortStory,
    CancelReason,
    DrainReport,
    Phase,
    RequestStory,
    WorkerState,
)
from service.telemetry.bounds import BoundCounts
from service.telemetry.figures import figures_of
from service.telemetry.logs import count_repeats
from service.telemetry.loop_lag import LoopLag
from service.telemetry.metrics import Metrics
from service.telemetry.repeats import quiet_library
from service.telemetry.request_log import RequestLog
from service.telemetry.stories import Stories
from service.telemetry.trace_settings import read_trace_settings

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from protocols.maintenance import Maintenance
    from protocols.steps import EngineStep
    from service.telemetry.figures import Figures
    from service.telemetry.live import GraphView
    from service.telemetry.spans import Spans
    from service.telemetry.trace_settings import TraceSettings

_DISTRIBUTION = "dynamo-actor-worker"
# A timer that is later than this has made every request wait: said as a warning.
LATE_S = 0.25

_Listener = tuple[str, Callable[["RequestStory", "Figures"], None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderSettings:
    """What the listeners must know about the worker.

    engine: the word of ``--engine``. model: the name it is served under. instance_id: tells this process from
    the others of its service. namespace: Dynamo's, None when not told. environ: where the framework's
    switches for traces, and a pod's variables, are read. bounds: what the engine counts into as well.
    capabilities, maintenance: of the engine.
    """

    engine: str
    framework_version: str
    model: str | None = None
    namespace: str | None = None
    instance_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    version: str = field(default_factory=lambda: metadata.version(_DISTRIBUTION))
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    bounds: BoundCounts = field(default_factory=BoundCounts)
    capabilities: EngineCapabilities = field(default_factory=EngineCapabilities)
    maintenance: Maintenance | None = None

    @property
    def worker(self) -> dict[str, str | None]:
        """Who tells the stories, for those who ask several workers."""
        return {
            "instance_id": self.instance_id,
            "version": self.version,
            "engine": self.engine,
            "model": self.model,
        }


class Recorder:
    """Implements `protocols.telemetry.Telemetry`. Belongs to the event loop, except where said."""

    def __init__(
        self,
        metrics: Metrics,
        stories: Stories,
        log: RequestLog,
        spans: Spans | None,
        worker: Mapping[str, str | None] | None = None,
    ) -> None:
        self.worker = {} if worker is None else dict(worker)
        self._metrics = metrics
        self._log = log
        self._spans = spans
        self.stories = stories
        self._of_probe: tuple[_Listener, ...] = (("log", log.request_ended),)
        self._of_request: tuple[_Listener, ...] = (
            ("metrics", metrics.request_ended),
            ("stories", stories.request_ended),
            *(() if spans is None else (("spans", spans.request_ended),)),
            *self._of_probe,
        )
        self.loop_lag = LoopLag(self._on_loop_lag, on_stall=self._on_loop_stall)
        self.count_chunk = metrics.count_chunk
        self.kv_events = metrics.kv_events
        self.on_bound = metrics.bounds

    @property
    def registry(self) -> CollectorRegistry:
        """What the framework's ``/metrics`` shall carry too. Any thread."""
        return self._metrics.registry

    @property
    def cache_hit_rate(self) -> float | None:
        """Cached share of all prompt tokens so far; None before the first."""
        return self._metrics.cache_hit_rate

    def watch(self, graph: GraphView) -> None:
        """The graph is open: its gauges are read at every scrape from now on."""
        self._guard("metrics", partial(self._metrics.watch, graph))

    def graph_closed(self) -> None:
        """The graph is closed, in whatever way: nothing is live any more."""
        self._guard("metrics", self._metrics.graph_closed)

    def shutdown(self) -> None:
        """Send what still waits. Blocks for at most 2 s; never raises; idempotent. Any thread."""
        if self._spans is not None:
            self._guard("spans", self._spans.shutdown)

    def request_submitted(
        self, trace_headers: Mapping[str, str] | None
    ) -> tuple[tuple[tuple[str, str], ...], object]:
        """Headers for the engine; those of a recorded request name the span ``actor.execute``."""
        if not trace_headers:
            return (), None
        if self._spans is not None:
            try:
                return self._spans.request_submitted(trace_headers)
            except Exception as exc:
                self._failed("spans", exc)
        return tuple(trace_headers.items()), None

    def request_ended(self, story: RequestStory) -> None:
        """Compute the figures once and let everybody write them down."""
        listeners = self._of_probe if story.is_probe else self._of_request
        try:
            figures = figures_of(story)
        except Exception as exc:  # then nobody has anything to write down
            for listener, _ in listeners:
                self._failed(listener, exc)
            return
        for listener, tell in listeners:
            try:
                tell(story, figures)
            except Exception as exc:
                self._failed(listener, exc)

    def request_named_unknown(self, key: str) -> None:
        """A request carried a key without a meaning here."""
        self._guard("log", partial(self._log.request_named_unknown, key))

    def request_cancelled(self, reason: CancelReason, phase: Phase) -> None:
        """A request is being ended early."""
        self._guard("metrics", partial(self._metrics.request_cancelled, reason, phase))
        self._guard("log", partial(self._log.request_cancelled, reason, phase))

    def abort_told(self, abort: AbortStory) -> None:
        """An abort was asked for, confirmed, or not confirmed in time."""
        self._guard("metrics", partial(self._metrics.abort_told, abort))
        self._guard("log", partial(self._log.abort_told, abort))
        if self._spans is not None:
            self._guard("spans", partial(self._spans.abort_told, abort))

    def step_done(self, step: EngineStep, tokens: int) -> None:
        """The engine made a step. Not guarded: once a step, for all requests."""
        self._metrics.step_done(step, tokens)

    def state_changed(self, state: WorkerState) -> None:
        """The worker moved on in its life."""
        self._guard("metrics", partial(self._metrics.state_changed, state))
        self._guard("log", partial(self._log.state_changed, state))
        if self._spans is not None:
            self._guard("spans", partial(self._spans.state_changed, state))

    def drain_progress(self, remaining: int, left_s: float) -> None:
        """While draining: so many requests are left, and for how long they may be."""
        self._guard("metrics", partial(self._metrics.drain_progress, remaining))
        self._guard("log", partial(self._log.drain_progress, remaining, left_s))

    def readers_awaited(self, readers: int, left_s: float) -> None:
        """After a drain: so many have not read their last tokens, and for how long they may."""
        self._guard("log", partial(self._log.readers_awaited, readers, left_s))

    def drain_ended(self, report: DrainReport) -> None:
        """A drain is over."""
        self._guard("metrics", partial(self._metrics.drain_ended, report.seconds))
        self._guard("log", partial(self._log.drain_ended, report))
        if self._spans is not None:
            self._guard("spans", partial(self._spans.drain_ended, report))

    def bound_reached(self, bound: Bound, count: int = 1, /) -> None:
        """A bound was reached; the log says so of those after which there is nobody to ask."""
        self.on_bound(bound, count)
        if bound is Bound.ENGINE_STOP:
            self._guard("log", self._log.engine_left_behind)
        elif bound is Bound.UNREAD_ANSWERS:
            self._guard("log", self._log.answer_not_read)

    def _on_loop_lag(self, seconds: float) -> None:
        self._guard("metrics", partial(self._metrics.loop_lag, seconds))
        if seconds >= LATE_S:
            self._guard("log", partial(self._log.loop_stalled, seconds))

    def _on_loop_stall(self, seconds: float, where: str) -> None:
        """In the stall watch's thread."""
        self._guard("log", partial(self._log.loop_stands, seconds, where))

    def _guard(self, listener: str, report: Callable[[], None]) -> None:
        try:
            report()
        except Exception as exc:
            self._failed(listener, exc)

    def _failed(self, listener: str, error: Exception) -> None:
        self._metrics.listener_failed(listener)
        if listener != "log":
            self._guard("log", partial(self._log.listener_failed, listener, error))


def build_recorder(settings: RecorderSettings) -> Recorder:
    """Everything put together. Raises ConfigError for telemetry settings that cannot be followed."""
    metrics = Metrics(
        version=settings.version,
        engine=settings.engine,
        framework_version=settings.framework_version,
        model=settings.model,
        capabilities=settings.capabilities,
        bounds=settings.bounds,
    )
    if settings.maintenance is not None:
        metrics.watch_memories(settings.maintenance)
    log = RequestLog(metrics.bounds)
    count_repeats(metrics.bounds)
    traces = read_trace_settings(settings.environ)
    spans = None if traces is None else _build_spans(settings, traces, metrics, log)
    return Recorder(metrics, Stories(metrics.bounds), log, spans, settings.worker)


def _build_spans(
    settings: RecorderSettings, traces: TraceSettings, metrics: Metrics, log: RequestLog
) -> Spans:
    # Imported only when spans are on: a worker without them starts without OpenTelemetry's SDK.
    from service.telemetry.exporting import Pipeline, build_exporter  # noqa: PLC0415
    from service.telemetry.span_attributes import RequestAttributes  # noqa: PLC0415
    from service.telemetry.spans import Spans, resource_of  # noqa: PLC0415

    def on_lost(reason: str, count: int) -> None:
        metrics.spans_lost(reason, count)
        try:
            log.spans_lost(reason, count)
        except Exception:  # in the exporter's thread as well, where nobody else would count it
            metrics.listener_failed("log")

    quiet_library("opentelemetry", metrics.bounds)
    return Spans(
        Pipeline(traces, build_exporter(traces.protocol), on_lost),
        resource_of(settings.version, settings.instance_id, settings.namespace, settings.environ),
        RequestAttributes(version=settings.version, engine=settings.engine, model=settings.model),
        has_roots=traces.has_roots,
    )
