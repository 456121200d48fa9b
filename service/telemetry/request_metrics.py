"""What is counted of every request at its end. Health probes are in none of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocols.errors import FailureCause
from protocols.rejections import RejectReason
from protocols.telemetry import CancelReason, Outcome, Phase
from service.telemetry.buckets import FIRST_TOKEN_S, HOP_S, PER_TOKEN_S, QUEUE_S, REQUEST_S
from service.telemetry.families import Counters, Histograms
from service.telemetry.figures import HopName

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from protocols.telemetry import RequestStory
    from service.telemetry.figures import Figures


class RequestMetrics:
    """Belongs to the event loop. What others derive their own figures from is public, to be read only.

    output_tokens: counted as they come, so by the owner of the steps.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._make_counters(registry)
        self._make_histograms(registry)

    def _make_counters(self, registry: CollectorRegistry) -> None:
        outcomes = Counters(registry, "requests_total", "Requests that got their outcome.", "outcome")
        self.outcomes = {outcome: outcomes.of(outcome.value) for outcome in Outcome}
        moved = "Interrupted requests that a frontend can continue on another worker."
        self._moved = Counters(registry, "requests_moved_total", moved).of()
        failed = Counters(registry, "failed_total", "Requests that failed, by what went wrong.", "cause")
        self.failed = {cause: failed.of(cause.value) for cause in FailureCause}
        text = "Requests refused before the engine saw them."
        rejected = Counters(registry, "rejected_total", text, "reason")
        self.rejected = {reason: rejected.of(reason.value) for reason in RejectReason}
        text = "Requests ended early, and where they were then."
        cancelled = Counters(registry, "cancellations_total", text, "reason", "phase")
        self.cancelled = {
            (reason, phase): cancelled.of(reason.value, phase.value)
            for reason in CancelReason
            for phase in Phase
        }
        text = "Tokens: of prompts, of those the ones not computed again, and generated."
        tokens = Counters(registry, "tokens_total", text, "direction")
        # Of the input, what the prefix cache had is counted a second time, on its own.
        self.input_tokens, self.cached_tokens = tokens.of("input"), tokens.of("input_cached")
        self.output_tokens = tokens.of("output")
        # Of requests whose prompt was computed, for the share of it that was not.
        self._computed_tokens = self._reused_tokens = 0

    def _make_histograms(self, registry: CollectorRegistry) -> None:
        self.queue = Histograms(registry, "queue_seconds", "Arrival to submit at the engine.", QUEUE_S).of()
        self.first_token = Histograms(
            registry, "time_to_first_token_seconds", "Arrival to the first token.", FIRST_TOKEN_S
        ).of()
        text = "Mean gap between two tokens of one choice."
        self.per_token = Histograms(registry, "time_per_output_token_seconds", text, PER_TOKEN_S).of()
        self._request = Histograms(registry, "request_seconds", "Arrival to the outcome.", REQUEST_S).of()
        hops = Histograms(registry, "hop_seconds", "Time in one hop of the graph.", HOP_S, "hop")
        # In the order in which a request passes them.
        self._hops = tuple(hops.of(hop.value) for hop in HopName)

    @property
    def cache_hit_rate(self) -> float | None:
        """Cached share of all prompt tokens; None before the first."""
        return self._reused_tokens / self._computed_tokens if self._computed_tokens else None

    def request_ended(self, story: RequestStory, figures: Figures) -> None:
        """Count a request that got its outcome. Tokens of a prompt count once the engine had it."""
        self.outcomes[story.outcome].inc()
        if story.is_moved:
            self._moved.inc()
        if story.failure_cause is not None:
            self.failed[story.failure_cause].inc()
        if story.reject_reason is not None:
            self.rejected[story.reject_reason].inc()
        self._request.observe(figures.request_s)
        for child, hop in zip(self._hops, figures.hops, strict=False):
            child.observe(hop.duration_s)
        if figures.queue_s is not None:
            self.queue.observe(figures.queue_s)
            self.input_tokens.inc(story.prompt_tokens)
            self.cached_tokens.inc(story.cached_tokens)
        if figures.ttft_s is not None:
            self.first_token.observe(figures.ttft_s)
            self._computed_tokens += story.prompt_tokens
            self._reused_tokens += story.cached_tokens
        if figures.itl_mean_s is not None:
            self.per_token.observe(figures.itl_mean_s)

    def request_cancelled(self, reason: CancelReason, phase: Phase) -> None:
        """Count an early end."""
        self.cancelled[reason, phase].inc()
