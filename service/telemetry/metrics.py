"""Prometheus metrics of one worker, in a registry of their own.

Every series exists from the start, so that an alert on a rate never misses the first event. What
happens per step or per chunk touches children that were bound once; what can be read when somebody
asks (mailboxes, live requests) is read then (`live`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info

from actors.intake import REJECTION_REASONS
from protocols.errors import FailureCause
from protocols.telemetry import AbortResult, CancelReason, Outcome, Phase, WorkerState
from service.telemetry.bounds import BoundCounts
from service.telemetry.buckets import DRAIN_S, FIRST_TOKEN_S, INSIDE_S, PER_TOKEN_S, QUEUE_S, REQUEST_S
from service.telemetry.figures import HopName
from service.telemetry.live import LiveGauges
from service.telemetry.registry import PREFIX, OwnRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from protocols.steps import EngineStep
    from protocols.telemetry import RequestStory
    from service.telemetry.figures import Figures
    from service.telemetry.live import GraphView

# Of the input, what the prefix cache had is counted a second time, on its own.
_DIRECTIONS = ("input", "input_cached", "output")
# Why a span was lost: no room in the queue, the collector did not take it, the worker was stopped first.
SPAN_LOSSES = ("queue_full", "export_failed", "shutdown")
# What became of an event of the KV cache.
KV_RESULTS = ("published", "failed", "malformed", "forgotten")
# Who writes reports down, for the count of those that could not be.
LISTENERS = ("metrics", "stories", "log", "spans")


class Metrics:
    """All names of this worker. Methods belong to the event loop; scraping to any thread."""

    def __init__(
        self,
        registry: CollectorRegistry | None = None,
        *,
        version: str,
        engine: str,
        framework_version: str,
        processors: Collection[str] = (),
        bounds: BoundCounts | None = None,
    ) -> None:
        self.registry = OwnRegistry() if registry is None else registry
        self._live = LiveGauges(PREFIX)
        self.registry.register(self._live)
        self.bounds = BoundCounts() if bounds is None else bounds
        self.registry.register(self.bounds)
        info = Info(f"{PREFIX}build", "What is running.", registry=self.registry)
        info.info({"version": version, "engine": engine, "framework_version": framework_version})
        self._make_request_metrics()
        self._make_worker_metrics()
        self._make_engine_metrics(processors)
        self.state_changed(WorkerState.STARTING)

    def _make_request_metrics(self) -> None:
        outcomes = self._counter("requests_total", "Requests that got their outcome.", "outcome")
        self._outcomes = {outcome: outcomes.labels(outcome.value) for outcome in Outcome}
        self._moved = self._counter(
            "requests_moved_total", "Interrupted requests that a frontend can continue on another worker."
        )
        failed = self._counter("failed_total", "Requests that failed, by what went wrong.", "cause")
        self._failed = {cause: failed.labels(cause.value) for cause in FailureCause}
        rejected = self._counter("rejected_total", "Requests refused before the engine saw them.", "reason")
        self._rejected = {reason: rejected.labels(reason) for reason in REJECTION_REASONS}
        cancelled = self._counter(
            "cancellations_total", "Requests ended early, and where they were then.", "reason", "phase"
        )
        self._cancelled = {
            (reason, phase): cancelled.labels(reason.value, phase.value)
            for reason in CancelReason
            for phase in Phase
        }
        aborts = self._counter(
            "aborts_total", "Aborts at the engine; asked minus confirmed are under way.", "result"
        )
        self._aborts = {result: aborts.labels(result.value) for result in AbortResult}
        tokens = self._counter(
            "tokens_total",
            "Tokens: of prompts, of those the ones not computed again, and generated.",
            "direction",
        )
        self._input, self._cached, self._output = (tokens.labels(direction) for direction in _DIRECTIONS)
        self._queue = self._histogram("queue_seconds", "Arrival to submit at the engine.", QUEUE_S)
        self._first_token = self._histogram(
            "time_to_first_token_seconds", "Arrival to the first token.", FIRST_TOKEN_S
        )
        self._per_token = self._histogram(
            "time_per_output_token_seconds", "Mean gap between two tokens of one choice.", PER_TOKEN_S
        )
        self._request = self._histogram("request_seconds", "Arrival to the outcome.", REQUEST_S)
        hops = self._histogram("hop_seconds", "Time in one hop of the graph.", INSIDE_S, "hop")
        # In the order in which a request passes them.
        self._hops = tuple(hops.labels(hop.value) for hop in HopName)

    def _make_worker_metrics(self) -> None:
        steps = self._counter("engine_steps_total", "Iterations of the engine.")
        self._count_step: Callable[[], None] = steps.inc
        self._step = self._histogram("engine_step_seconds", "One iteration of the engine.", INSIDE_S)
        states = self._gauge("worker_state", "1 for the state the worker is in, 0 for the others.", "state")
        self._states = {state: states.labels(state.value) for state in WorkerState}
        self._remaining = self._gauge("drain_remaining_requests", "Requests a drain still waits for.")
        self._drain = self._histogram(
            "drain_seconds", "From the closing of the door to the last outcome.", DRAIN_S
        )
        self._loop_lag = self._histogram(
            "loop_lag_seconds", "How late the event loop woke a timer.", INSIDE_S
        )
        self._last_loop_lag = self._gauge(
            "loop_lag_last_seconds", "How late the event loop woke a timer the last time."
        )
        lost = self._counter("spans_lost_total", "Spans that did not reach the collector.", "reason")
        self._spans_lost = {reason: lost.labels(reason) for reason in SPAN_LOSSES}
        errors = self._counter(
            "telemetry_errors_total", "Reports a listener could not write down.", "listener"
        )
        self._errors = {sink: errors.labels(sink) for sink in LISTENERS}

    def _make_engine_metrics(self, processors: Collection[str]) -> None:
        # Of requests whose prompt was computed, for the share of it that was not.
        self._prompt_tokens = self._cached_tokens = 0
        events = self._counter(
            "kv_events_total", "Events of the KV cache, and what became of them.", "result"
        )
        self._kv_events = {result: events.labels(result) for result in KV_RESULTS}
        seconds = self._counter(
            "logits_processor_seconds_total", "Time spent in a logits processor.", "processor"
        )
        tokens = self._counter(
            "logits_processor_tokens_total", "Tokens a logits processor was asked for.", "processor"
        )
        self._processors = {name: (tokens.labels(name), seconds.labels(name)) for name in sorted(processors)}

    @property
    def cache_hit_rate(self) -> float | None:
        """Cached share of all prompt tokens; None before the first."""
        return self._cached_tokens / self._prompt_tokens if self._prompt_tokens else None

    def watch(self, graph: GraphView) -> None:
        """From now on read what is live from this graph, at every scrape."""
        self._live.graph = graph

    def request_ended(self, story: RequestStory, figures: Figures) -> None:
        """Count a request that got its outcome. Tokens of a prompt count once the engine had it."""
        self._outcomes[story.outcome].inc()
        if story.is_moved:
            self._moved.inc()
        if story.failure_cause is not None:
            self._failed[story.failure_cause].inc()
        self._request.observe(figures.request_s)
        for child, hop in zip(self._hops, figures.hops, strict=False):
            child.observe(hop.duration_s)
        if figures.queue_s is not None:
            self._queue.observe(figures.queue_s)
            self._input.inc(story.prompt_tokens)
            self._cached.inc(story.cached_tokens)
        if figures.ttft_s is not None:
            self._first_token.observe(figures.ttft_s)
            self._prompt_tokens += story.prompt_tokens
            self._cached_tokens += story.cached_tokens
        if figures.itl_mean_s is not None:
            self._per_token.observe(figures.itl_mean_s)

    def request_rejected(self, reason: str) -> None:
        """Count a refusal; a word that is none of the known ones counts as "other"."""
        self._rejected.get(reason, self._rejected["other"]).inc()

    def request_cancelled(self, reason: CancelReason, phase: Phase) -> None:
        """Count an early end."""
        self._cancelled[reason, phase].inc()

    def abort_result(self, result: AbortResult) -> None:
        """Count what became of an abort."""
        self._aborts[result].inc()

    def step_done(self, step: EngineStep, tokens: int) -> None:
        """Per step, so only bound children. Tokens count as they come, those of health probes too."""
        self._count_step()
        self._step.observe(step.ended_s - step.started_s)
        self._output.inc(tokens)
        self._live.used_blocks = step.used_blocks
        self._live.cached_blocks = step.cached_blocks
        for use in step.processors:
            if (counters := self._processors.get(use.name)) is not None:
                counters[0].inc(use.tokens)
                counters[1].inc(use.seconds)

    def kv_events(self, result: str, count: int) -> None:
        """Count events of the KV cache. ``result`` is one of KV_RESULTS."""
        self._kv_events[result].inc(count)

    def count_chunk(self) -> None:
        """Per chunk, so only a number: an increment of a counter costs as much as the chunk's whole way."""
        self._live.chunks += 1

    def state_changed(self, state: WorkerState) -> None:
        """Exactly one state is 1. (A scrape in between may see two: it never sees none.)"""
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
        self._spans_lost[reason].inc(count)

    def listener_failed(self, listener: str) -> None:
        """Count a report that was not written down. ``listener`` is one of LISTENERS."""
        self._errors[listener].inc()

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(PREFIX + name, text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(PREFIX + name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, bounds: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(PREFIX + name, text, labels, registry=self.registry, buckets=bounds)
