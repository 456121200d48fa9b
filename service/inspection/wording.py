"""The words and figures of a request that both a terminal and its reader understand."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC

from protocols.telemetry import Outcome
from service.inspection.journeys import Journey, Life
from service.inspection.story import Story, Worker


def headline(journey: Journey) -> str:
    """Which request, how it ended, and after how long."""
    story = journey.last.story
    lives = f" in {len(journey.lives)} lives" if len(journey.lives) > 1 else ""
    return f"request {journey.first.story.engine_id}  {ending(story)}  {duration(journey.duration_ms)}{lives}"


def ending(story: Story) -> str:
    """The outcome, its reason, and how far it came when it did not get all it asked for."""
    reason = story.cancel_reason or story.finish_reason or story.failure_cause or story.reject_reason
    why = f" ({reason})" if reason and not story.outcome.startswith(reason) else ""
    where = "" if story.outcome == Outcome.COMPLETED else f" in {story.phase}"
    return f"{story.outcome}{why}{where}"


def cause(story: Story) -> str:
    """The error that it ended with, if any, and of a mistake the field that it is in."""
    return ": ".join(text for text in (story.error_kind, story.error, story.refused_field) if text)


def whereabouts(journey: Journey) -> Iterator[str]:
    """When, where, and under which names it is found elsewhere."""
    story = journey.first.story
    yield story.arrived_at.astimezone(UTC).isoformat(" ", "milliseconds").replace("+00:00", " UTC")
    if len(journey.lives) == 1 and (where := place(journey.first.worker)):
        yield where
    yield f"context {story.context_id}"
    if story.x_request_id not in (None, story.context_id):
        yield f"x-request-id {story.x_request_id}"
    if story.trace_id is not None:
        yield f"trace {story.trace_id}" + ("" if story.is_sampled else " (not sampled)")


def place(worker: Worker) -> str:
    """Where the worker was asked, which is where it runs; without that as it calls itself."""
    name = worker.address or worker.instance_id
    engine = " ".join(word for word in (worker.engine, worker.model) if word)
    return f"worker {name}" + (f" ({engine})" if engine else "") if name else ""


def life_line(number: int, life: Life) -> Iterator[str]:
    """One of several."""
    story = life.story
    yield f"life {number}: {ending(story)}, {duration(story.duration_ms)}"
    yield f"request {life.story.engine_id} of {place(life.worker)}"


def stages(story: Story) -> Iterator[tuple[str, float, float]]:
    """A hop each, as its span is called; below the executor's what it consists of. Label, start, duration."""
    for hop in story.hops:
        yield hop.label, hop.start_ms, hop.duration_ms
        if hop.waiting_ms is not None:
            yield "  waiting", hop.start_ms, hop.waiting_ms
            if hop.prefill_ms is not None:
                yield "  prefill", hop.start_ms + hop.waiting_ms, hop.prefill_ms


def figures(story: Story) -> Iterator[str]:
    """What is counted and measured besides the stages."""
    cached = f" ({story.cached_tokens} cached)" if story.cached_tokens else ""
    most = "" if story.max_tokens is None else f" of at most {story.max_tokens}"
    yield f"{story.prompt_tokens} tokens in{cached}, {story.completion_tokens} out{most}"
    if story.ttft_ms is not None:
        yield f"first token after {duration(story.ttft_ms)}"
    if story.itl_mean_ms is not None:
        yield f"then one every {duration(story.itl_mean_ms)}"
    if story.itl_p50_ms is not None:
        yield f"half of them within {duration(story.itl_p50_ms)}"


def duration(milliseconds: float) -> str:
    """At most twelve columns wide, to the microsecond below ten seconds."""
    if milliseconds < 9_999.9:
        return f"{milliseconds:.3f} ms"
    seconds = milliseconds / 1e3
    return f"{seconds:.3f} s" if seconds < 999_999 else f"{seconds:.3g} s"
