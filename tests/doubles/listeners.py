"""A listener that keeps everything the graph tells it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from protocols.rejections import RejectReason
from protocols.telemetry import (
    AbortResult,
    AbortStory,
    CancelReason,
    DrainReport,
    NullTelemetry,
    Outcome,
    Phase,
    RequestStory,
    WorkerState,
)

if TYPE_CHECKING:
    from protocols.bounds import Bound
    from protocols.steps import EngineStep


class RecordingTelemetry(NullTelemetry):
    """Counts and keeps; two stories about one request fail the test that caused them right here."""

    def __init__(self) -> None:
        self.stories: dict[int, RequestStory] = {}
        self.unknown_keys: list[str] = []
        self.cancellations: Counter[tuple[CancelReason, Phase]] = Counter()
        self.aborts: Counter[AbortResult] = Counter()
        self.states: list[WorkerState] = []
        self.steps = 0
        self.tokens = 0
        self.drain_figures: list[tuple[int, float]] = []
        self.drain_reports: list[DrainReport] = []
        self.bounds: Counter[Bound] = Counter()

    @property
    def outcomes(self) -> Counter[Outcome]:
        """Stories by outcome; health probes are in no count."""
        return Counter(story.outcome for story in self.stories.values() if not story.is_probe)

    @property
    def rejections(self) -> Counter[RejectReason]:
        """Refusals by reason; health probes are in no count."""
        reasons = (story.reject_reason for story in self.stories.values() if not story.is_probe)
        return Counter(reason for reason in reasons if reason is not None)

    def request_ended(self, story: RequestStory) -> None:
        assert story.engine_id not in self.stories, f"request {story.engine_id} ended twice"
        self.stories[story.engine_id] = story

    def request_named_unknown(self, key: str) -> None:
        self.unknown_keys.append(key)

    def request_cancelled(self, reason: CancelReason, phase: Phase) -> None:
        self.cancellations[reason, phase] += 1

    def abort_told(self, abort: AbortStory) -> None:
        self.aborts[abort.result] += 1

    def step_done(self, step: EngineStep, tokens: int) -> None:
        self.steps += 1
        self.tokens += tokens

    def state_changed(self, state: WorkerState) -> None:
        self.states.append(state)

    def drain_progress(self, remaining: int, left_s: float) -> None:
        self.drain_figures.append((remaining, left_s))

    def drain_ended(self, report: DrainReport) -> None:
        self.drain_reports.append(report)

    def bound_reached(self, bound: Bound, count: int = 1, /) -> None:
        self.bounds[bound] += count
