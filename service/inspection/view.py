"""What was heard, as plain data: the answer to ``--json``, and what the page is made from."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from msgspec import to_builtins

from service.inspection.asking import Asked, Heard
from service.inspection.journeys import Journey, Life


def view_of(heard: Heard, made_at: datetime | None = None) -> dict[str, Any]:
    """Times in milliseconds. A life's ``worker`` is its place in ``workers``.

    made_at: when it was asked; now by default.
    """
    question = heard.question
    places = {asked.worker.url: place for place, asked in enumerate(heard.asked)}
    return {
        "made_at": _moment(made_at or datetime.now(UTC)),
        "asked": {"id": question.wanted}
        if question.wanted is not None
        else {"which": question.which.value, "limit": question.limit},
        "workers": [_worker(asked) for asked in heard.asked],
        "requests": [_request(journey, places) for journey in heard.journeys],
    }


def _worker(asked: Asked) -> dict[str, Any]:
    return {**to_builtins(asked.worker), "trouble": asked.trouble}


def _request(journey: Journey, places: dict[str, int]) -> dict[str, Any]:
    last = journey.last.story
    return {
        "context_id": last.context_id,
        "outcome": last.outcome,
        "arrived_at": _moment(journey.first.story.arrived_at),
        "duration_ms": round(journey.duration_ms, 3),
        "ttft_ms": None if journey.ttft_ms is None else round(journey.ttft_ms, 3),
        "completion_tokens": journey.completion_tokens,
        "is_beginning_missing": journey.is_beginning_missing,
        "lives": [_life(life, places) for life in journey.lives],
    }


def _life(life: Life, places: dict[str, int]) -> dict[str, Any]:
    told: dict[str, Any] = to_builtins(life.story)
    return {
        **told,
        "arrived_at": _moment(life.story.arrived_at),
        "worker": places[life.worker.url],
        "start_ms": life.start_ms,
        "gap_ms": life.gap_ms,
        "overlap_ms": life.overlap_ms,
    }


def _moment(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
