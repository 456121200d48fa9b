"""What a span says about its request: GenAI names where the conventions have one, else ``actor.*``.

Ids, counts, times and words from fixed sets; never anything a user wrote.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.trace import Status, StatusCode

from protocols.telemetry import Outcome
from service.telemetry.figures import HopName
from service.telemetry.identifiers import shown_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from protocols.telemetry import AbortStory, RequestStory
    from service.telemetry.figures import Figures, Hop

Attributes = dict[str, "str | bool | int | float | Sequence[str]"]

UNSET = Status(StatusCode.UNSET)
LATE_ABORT = Status(StatusCode.ERROR, "not confirmed in time")
# A caller who leaves or has seen enough is no error.
_FINE = frozenset({Outcome.COMPLETED, Outcome.STOPPED_BY_FRONTEND, Outcome.CANCELLED})
# Options of a request, and the value with which each changes nothing: then it is not told.
_OPTIONS = (
    ("top_p", 1.0),
    ("top_k", 0),
    ("frequency_penalty", 0.0),
    ("presence_penalty", 0.0),
)
# What an engine measured itself, on the hop that it is a part of.
_ENGINE_EXECUTE, _ENGINE_STREAM = ("queued", "prefill", "transfer"), ("decode",)
# OTLP's whole numbers have a sign; a seed is kept without one.
_SEEDS, _FIRST_NEGATIVE = 2**64, 2**63


def status_of(story: RequestStory) -> Status:
    """Of the hop in which the request ended; its words are kinds of errors, never an error's own text."""
    if story.outcome in _FINE:
        return UNSET
    cause = "" if story.failure_cause is None else f": {story.failure_cause.value}"
    return Status(StatusCode.ERROR, f"{_error_type(story)}{cause}")


def waiting_ms(execute: Hop, figures: Figures) -> float:
    """For how long the engine had no room for a request; the whole hop when it never got it."""
    submitted_s = execute.end_s if figures.submitted_s is None else figures.submitted_s
    return round((submitted_s - execute.start_s) * 1000, 3)


class RequestAttributes:
    """Knows what all requests of this worker have in common.

    model: the name it is served under, None when not told.
    """

    def __init__(self, *, version: str, engine: str, model: str | None) -> None:
        self.version = version
        self._inference: Attributes = {
            "gen_ai.operation.name": "text_completion",
            "gen_ai.provider.name": f"dynamo_actor.{engine}",
        }
        if model is not None:
            self._inference["gen_ai.request.model"] = model

    def of_hop(self, hop: Hop, story: RequestStory, figures: Figures) -> Attributes:
        """Beside `ids_of`: the hop's own; those of the whole request on the hop in which it ended."""
        found: Attributes = {}
        match hop.name:
            case HopName.INTAKE:
                _add_predecessor(found, story)
            case HopName.RESOLVE:
                pass
            case HopName.EXECUTE:
                self._add_prefill(found, hop, story, figures)
            case HopName.STREAM:
                self._add_decode(found, story, figures)
        if hop is figures.hops[-1]:
            _add_end(found, story)
        return found

    def _add_prefill(self, found: Attributes, hop: Hop, story: RequestStory, figures: Figures) -> None:
        found.update(self._inference)
        _add_options(found, story)
        found["gen_ai.usage.input_tokens"] = story.prompt_tokens
        found["gen_ai.usage.cache_read.input_tokens"] = story.cached_tokens
        found["actor.waiting_ms"] = waiting_ms(hop, figures)
        if story.preemptions:
            found["actor.preemptions"] = story.preemptions
        _add_engine_timing(found, story, _ENGINE_EXECUTE)

    def _add_decode(self, found: Attributes, story: RequestStory, figures: Figures) -> None:
        found.update(self._inference)
        found["gen_ai.usage.output_tokens"] = story.completion_tokens
        found["actor.chunks"] = story.chunks
        if figures.ttft_s is not None:
            found["gen_ai.response.time_to_first_chunk"] = round(figures.ttft_s, 6)
        if figures.itl_mean_s is not None:
            found["actor.itl_mean_ms"] = round(figures.itl_mean_s * 1000, 3)
        if figures.itl_p50_s is not None:
            found["actor.itl_p50_ms"] = round(figures.itl_p50_s * 1000, 3)
        _add_engine_timing(found, story, _ENGINE_STREAM)


def ids_of(story: RequestStory | AbortStory) -> Attributes:
    """What every span of a request has: our id for it, and Dynamo's."""
    return {"actor.engine_id": story.engine_id, "actor.context_id": shown_id(story.context_id)}


def of_cancel(story: RequestStory) -> Attributes:
    """Beside `ids_of`: what is known of the time between the wish to end a request early and its end."""
    reason = "" if story.cancel_reason is None else story.cancel_reason.value
    return {"actor.cancel.reason": reason, "actor.phase": story.phase.value}


def _add_predecessor(found: Attributes, story: RequestStory) -> None:
    """As the framework names them, for those who read spans without their links."""
    if story.predecessor is not None:
        found["migration_trace_id"] = story.predecessor.trace_id
        found["migration_span_id"] = story.predecessor.span_id


def _add_engine_timing(found: Attributes, story: RequestStory, parts: tuple[str, ...]) -> None:
    """By the engine's own clock: together they need not make up the hop."""
    for part in parts:
        seconds: float | None = getattr(story.engine_timing, f"{part}_s", None)
        if seconds is not None:
            found[f"actor.engine.{part}_ms"] = round(seconds * 1000, 3)


def _add_options(found: Attributes, story: RequestStory) -> None:
    """What the resolved request asks of the engine. Stop strings would be content."""
    if story.max_tokens is not None:
        found["gen_ai.request.max_tokens"] = story.max_tokens
    if story.n != 1:
        found["gen_ai.request.choice.count"] = story.n
    sampling = story.sampling
    if sampling is None:
        return
    found["gen_ai.request.temperature"] = sampling.temperature
    if not sampling.is_greedy:
        found["gen_ai.request.seed"] = _signed(sampling.seed)
    for option, neutral in _OPTIONS:
        value: float = getattr(sampling, option)
        if value != neutral:
            found[f"gen_ai.request.{option}"] = value


def _signed(seed: int) -> int:
    """As the request had it on the wire."""
    return seed - _SEEDS if seed >= _FIRST_NEGATIVE else seed


def _add_end(found: Attributes, story: RequestStory) -> None:
    found["actor.outcome"] = story.outcome.value
    found["actor.phase"] = story.phase.value
    reasons = tuple(reason for reason in story.finish_reasons if reason is not None)
    if reasons:
        found["gen_ai.response.finish_reasons"] = reasons
    if story.cancel_reason is not None:
        found["cancelled"] = True
    if story.reject_reason is not None:
        found["actor.reject_reason"] = story.reject_reason.value
    if story.refused_field is not None:
        found["actor.refused_field"] = story.refused_field
    if story.is_moved:
        found["actor.is_moved"] = True
    if story.outcome not in _FINE:
        found["error.type"] = _error_type(story)


def _error_type(story: RequestStory) -> str:
    """One of our kinds of errors: a handful of words."""
    return story.error_kind or story.outcome.value
