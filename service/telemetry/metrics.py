"""Prometheus metrics of one worker, in a registry of their own.

Every series exists from the start, so that an alert on a rate never misses the first event. What
happens per step or per chunk touches children that were bound once; what can be read when somebody
asks (mailboxes, live requests) is read then (`live`).
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from protocols.engine import EngineCapabilities, Figure
from protocols.telemetry import AbortResult, WorkerState
from service.telemetry.bounds import BoundCounts
from service.telemetry.buckets import DRAIN_S, INSIDE_S
from service.telemetry.families import Counters, Gauges, Histograms
from service.telemetry.live import LiveGauges
from service.telemetry.memories import MemoryGauges
from service.telemetry.request_metrics import RequestMetrics
from service.telemetry.trtllm_shape import OUR_ENGINES, TrtllmShape

if TYPE_CHECKING:
    from protocols.maintenance import Maintenance
    from protocols.steps import EngineStep
    from protocols.telemetry import AbortStory, RequestStory
    from service.telemetry.families import Counter
    from service.telemetry.figures import Figures
    from service.telemetry.live import GraphView

# Why a span was lost: no room in the queue, the collector did not take it, the worker was stopped first.
SPAN_LOSSES = ("queue_full", "export_failed", "shutdown")
# What became of an event of the KV cache.
KV_RESULTS = ("published", "failed", "malformed", "forgotten", "lost")
# Who writes reports down, for the count of those that could not be.
LISTENERS = ("metrics", "stories", "log", "spans")


class Metrics:
    """All names of this worker. Methods belong to the event loop, except where said; scraping to any thread.

    model: the name it is served under. capabilities: what the engine runs and tells; what it does not tell
    has no series.
    """

    def __init__(
        self,
        *,
        version: str,
        engine: str,
        framework_version: str,
        model: str | None = None,
        capabilities: EngineCapabilities | None = None,
        bounds: BoundCounts | None = None,
    ) -> None:
        self.registry = CollectorRegistry()
        # Of the few counters that threads write which are not the loop's.
        self._lock = Lock()
        can = EngineCapabilities() if capabilities is None else capabilities
        self._live = LiveGauges(can.untold)
        self.registry.register(self._live)
        self.bounds = BoundCounts() if bounds is None else bounds
        self.registry.register(self.bounds)
        labels = ("version", "engine", "framework_version")
        build = Gauges(self.registry, "build_info", "What is running.", *labels)
        build.of(version, engine, framework_version).set(1)
        self.requests = RequestMetrics(self.registry)
        self.request_cancelled = self.requests.request_cancelled
        self.count_chunk = Counters(self.registry, "chunks_total", "Chunks given to the framework.").of().inc
        self._make_worker_metrics()
        self._make_engine_metrics(can)
        self._shape: TrtllmShape | None = None
        if engine in OUR_ENGINES:
            self._shape = TrtllmShape(model or "", engine, self.requests, self._live)
            self.registry.register(self._shape)
        self.state_changed(WorkerState.STARTING)

    def _make_worker_metrics(self) -> None:
        registry = self.registry
        text = "1 for the state the worker is in, 0 for the others."
        states = Gauges(registry, "worker_state", text, "state")
        self._states = {state: states.of(state.value) for state in WorkerState}
        text = "Requests a drain still waits for."
        self._remaining = Gauges(registry, "drain_remaining_requests", text).of()
        text = "From the stop being asked for to the last outcome."
        self._drain = Histograms(registry, "drain_seconds", text, DRAIN_S).of()
        text = "How late the event loop woke a timer."
        self._loop_lag = Histograms(registry, "loop_lag_seconds", text, INSIDE_S).of()
        text = "How late the event loop woke a timer the last time."
        self._last_loop_lag = Gauges(registry, "loop_lag_last_seconds", text).of()
        text = "Spans that did not reach the collector."
        lost = Counters(registry, "spans_lost_total", text, "reason")
        self._spans_lost = {reason: lost.of(reason) for reason in SPAN_LOSSES}
        text = "Reports a listener could not write down."
        errors = Counters(registry, "telemetry_errors_total", text, "listener")
        self._errors = {listener: errors.of(listener) for listener in LISTENERS}

    def _make_engine_metrics(self, can: EngineCapabilities) -> None:
        registry = self.registry
        self._steps = Counters(registry, "engine_steps_total", "Iterations of the engine.").of()
        text = "One iteration of the engine."
        self._step = Histograms(registry, "engine_step_seconds", text, INSIDE_S).of()
        self._preemptions = None if Figure.PREEMPTIONS in can.untold else self._new_preemptions()
        text = "Aborts at the engine; asked minus confirmed are under way."
        aborts = Counters(registry, "aborts_total", text, "result")
        self._aborts = {result: aborts.of(result.value) for result in AbortResult}
        text = "From telling the engine that a request ends to its confirmation."
        self._abort = Histograms(registry, "abort_seconds", text, INSIDE_S).of()
        text = "Events of the KV cache, and what became of them."
        events = Counters(registry, "kv_events_total", text, "result")
        self._kv_events = {result: events.of(result) for result in KV_RESULTS}
        text = "Time spent in a logits processor."
        seconds = Counters(registry, "logits_processor_seconds_total", text, "processor")
        text = "Tokens a logits processor was asked for."
        tokens = Counters(registry, "logits_processor_tokens_total", text, "processor")
        self._processors = {name: (tokens.of(name), seconds.of(name)) for name in sorted(can.processors)}

    def _new_preemptions(self) -> Counter:
        text = "Sequences that gave their KV blocks back, to be computed again."
        return Counters(self.registry, "engine_preemptions_total", text).of()

    def watch_memories(self, maintenance: Maintenance) -> None:
        """Show, at every scrape, which of the engine's memories are given back."""
        self.registry.register(MemoryGauges(maintenance))

    @property
    def cache_hit_rate(self) -> float | None:
        """Cached share of all prompt tokens; None before the first."""
        return self.requests.cache_hit_rate

    def watch(self, graph: GraphView) -> None:
        """From now on read what is live from this graph, at every scrape."""
        self._live.watch(graph)

    def graph_closed(self) -> None:
        """The graph that was watched is closed, in whatever way: nothing is live, or waited for."""
        self._live.close()
        self._remaining.set(0)

    def request_ended(self, story: RequestStory, figures: Figures) -> None:
        """Count a request that got its outcome."""
        self.requests.request_ended(story, figures)
        if self._shape is not None:
            self._shape.request_ended(story, figures)

    def abort_told(self, abort: AbortStory) -> None:
        """Count what became of an abort."""
        self._aborts[abort.result].inc()
        if abort.result is AbortResult.CONFIRMED:
            self._abort.observe(abort.at_s - abort.asked_s)

    def step_done(self, step: EngineStep, tokens: int) -> None:
        """Per step, so only bound children. ``tokens`` were delivered to requests, as they came."""
        if step.is_iteration:
            duration_s = step.ended_s - step.started_s
            self._steps.inc()
            self._step.observe(duration_s)
            self._live.step_s = duration_s
        self.requests.output_tokens.inc(tokens)
        self._live.used_blocks = step.used_blocks
        self._live.cached_blocks = step.cached_blocks
        if step.preempted and self._preemptions is not None:
            self._preemptions.inc(len(step.preempted))
        for use in step.processors:
            if (counters := self._processors.get(use.name)) is not None:
                counters[0].inc(use.tokens)
                counters[1].inc(use.seconds)

    def kv_events(self, result: str, count: int) -> None:
        """Count events of the KV cache. ``result`` is one of KV_RESULTS."""
        self._kv_events[result].inc(count)

    def state_changed(self, state: WorkerState) -> None:
        """Exactly one state is 1. (A scrape in between may see two: it never sees none.)

        Who has failed stays failed, though its engine is stopped then: scrapes would miss the moment between.
        """
        if self._states[WorkerState.FAILED].value:
            return
        self._states[state].set(1)
        for other, gauge in self._states.items():
            if other is not state:
                gauge.set(0)

    def drain_progress(self, remaining: int) -> None:
        """Show how many a drain waits for."""
        self._remaining.set(remaining)

    def drain_ended(self, seconds: float) -> None:
        """Count a drain."""
        self._drain.observe(seconds)

    def loop_lag(self, seconds: float) -> None:
        """How late a timer was."""
        self._loop_lag.observe(seconds)
        self._last_loop_lag.set(seconds)

    def spans_lost(self, reason: str, count: int) -> None:
        """Any thread. ``reason`` is one of SPAN_LOSSES."""
        with self._lock:
            self._spans_lost[reason].inc(count)

    def listener_failed(self, listener: str) -> None:
        """Count a report that was not written down. Any thread. ``listener`` is one of LISTENERS."""
        with self._lock:
            self._errors[listener].inc()
