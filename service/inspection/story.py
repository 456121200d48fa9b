"""The answer of a worker's route ``trace``, checked: what is shown has the types that it says it has."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct

from service.telemetry.stories import MOST_TOLD

# A request lives a day at most, and workers are restarted: thirty years is nobody's time.
Milliseconds = Annotated[float, Meta(ge=0, le=1e12)]
Count = Annotated[int, Meta(ge=0, le=10**15)]
# A worker tells of 65 marks and 4 hops: room for what later ones may tell.
_MOST_MARKS, _MOST_HOPS = 512, 16
_MOST_CHOICES = 4096
# With them a request's end, and its arrival in another time zone, are times that can be written.
_FIRST_YEAR, _LAST_YEAR = 1970, 9000


class Hop(Struct, frozen=True):
    """One hop, from the request's arrival on. waiting_ms and prefill_ms: of the executor's."""

    name: str
    start_ms: Milliseconds
    duration_ms: Milliseconds
    waiting_ms: Milliseconds | None = None
    prefill_ms: Milliseconds | None = None

    @property
    def label(self) -> str:
        """As its span is called, without what all of them have in common."""
        return self.name.removeprefix("actor.")


class EngineTimes(Struct, frozen=True, kw_only=True):
    """What the engine measured itself, by its own clock."""

    queued_ms: Milliseconds | None = None
    prefill_ms: Milliseconds | None = None
    decode_ms: Milliseconds | None = None
    transfer_ms: Milliseconds | None = None


class Predecessor(Struct, frozen=True):
    """The framework's span of the life before, on another worker."""

    trace_id: str
    span_id: str


class Mark(NamedTuple):
    """So many tokens had come at this moment after the arrival."""

    at_ms: Milliseconds
    tokens: Count


class Story(Struct, frozen=True, kw_only=True):
    """As `service.telemetry.stories.story_as_dict` writes it. Keys that are not here are left alone."""

    engine_id: Count
    context_id: str
    x_request_id: str | None = None
    trace_id: str | None
    span_id: str | None = None
    arrived_at: Annotated[datetime, Meta(tz=True)]
    outcome: str
    phase: str
    finish_reason: str | None
    finish_reasons: Annotated[list[str | None], Meta(max_length=_MOST_CHOICES)]
    cancel_reason: str | None
    error_kind: str | None
    error: str | None
    failure_cause: str | None
    reject_reason: str | None = None
    refused_field: str | None = None
    n: Count
    max_tokens: Count | None = None
    prompt_tokens: Count
    cached_tokens: Count
    completion_tokens: Count
    chunks: Count
    duration_ms: Milliseconds
    queue_ms: Milliseconds | None
    ttft_ms: Milliseconds | None
    itl_mean_ms: Milliseconds | None
    itl_p50_ms: Milliseconds | None
    engine: EngineTimes | None = None
    cancelled_ms: Milliseconds | None
    preemptions: Count
    preempted_ms: Annotated[list[Milliseconds], Meta(max_length=_MOST_MARKS)]
    marks: Annotated[list[Mark], Meta(max_length=_MOST_MARKS)]
    is_sampled: bool
    is_moved: bool
    predecessor: Predecessor | None
    hops: Annotated[list[Hop], Meta(max_length=_MOST_HOPS)]

    def __post_init__(self) -> None:
        if not _FIRST_YEAR <= self.arrived_at.year <= _LAST_YEAR:
            raise ValueError(f"arrived_at: {self.arrived_at.year} is not allowed: a year that clocks have")


class Worker(Struct, frozen=True):
    """Who told. url: where it was asked; the rest is what it says of itself."""

    url: str = ""
    instance_id: str | None = None
    version: str | None = None
    engine: str | None = None
    model: str | None = None

    @property
    def address(self) -> str:
        """Host and port, as the shell was given them; empty where nobody was asked."""
        return self.url.removeprefix("http://").rstrip("/")


class Answer(Struct, frozen=True):
    """Of one worker."""

    worker: Worker
    stories: Annotated[list[Story], Meta(max_length=MOST_TOLD)]
