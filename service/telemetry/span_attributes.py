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

    from protocols.telemetry import RequestStory
    from service.telemetry.figures import Figures, Hop

Attributes = dict[str, "str | bool | int | float | Sequence[str]"]

UNSET = Status(StatusCode.UNSET)
_ERROR = Status(StatusCode.ERROR)
# A caller who leaves or has seen enough is no error.
_FINE = frozenset({Outcome.COMPLETED, Outcome.STOPPED_BY_FRONTEND, Outcome.CANCELLED})


def status_of(story: RequestStory) -> Status:
    """Of the hop in which the request ended."""
    return UNSET if story.outcome in _FINE else _ERROR


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
        """Attributes of the hop's span; those of the whole request on the hop in which it ended."""
        found: Attributes = {
            "actor.engine_id": story.engine_id,
            "actor.context_id": shown_id(story.context_id),
        }
        if hop.name is HopName.EXECUTE:
            self._add_prefill(found, hop, story, figures)
        elif hop.name is HopName.STREAM:
            self._add_decode(found, story, figures)
        if hop is figures.hops[-1]:
            _add_end(found, story)
        return found

    def of_cancel(self, story: RequestStory) -> Attributes:
        """Attributes of the moment at which a request was ended early."""
        reason = "" if story.cancel_reason is None else story.cancel_reason.value
        return {
            "actor.engine_id": story.engine_id,
            "actor.cancel.reason": reason,
            "actor.phase": story.phase.value,
        }

    def _add_prefill(self, found: Attributes, hop: Hop, story: RequestStory, figures: Figures) -> None:
        submitted_s = hop.end_s if figures.submitted_s is None else figures.submitted_s
        found.update(self._inference)
        found["gen_ai.usage.input_tokens"] = story.prompt_tokens
        found["gen_ai.usage.cache_read.input_tokens"] = story.cached_tokens
        found["actor.waiting_ms"] = round((submitted_s - hop.start_s) * 1000, 3)
        if story.n != 1:
            found["gen_ai.request.choice.count"] = story.n

    def _add_decode(self, found: Attributes, story: RequestStory, figures: Figures) -> None:
        found.update(self._inference)
        found["gen_ai.usage.output_tokens"] = story.completion_tokens
        if figures.ttft_s is not None:
            found["gen_ai.response.time_to_first_chunk"] = round(figures.ttft_s, 6)
        if figures.itl_mean_s is not None:
            found["actor.itl_mean_ms"] = round(figures.itl_mean_s * 1000, 3)


def _add_end(found: Attributes, story: RequestStory) -> None:
    found["actor.outcome"] = story.outcome.value
    found["actor.phase"] = story.phase.value
    reasons = tuple(reason for reason in story.finish_reasons if reason is not None)
    if reasons:
        found["gen_ai.response.finish_reasons"] = reasons
    if story.cancel_reason is not None:
        found["cancelled"] = True
    if story.outcome not in _FINE:
        found["error.type"] = story.error_kind or story.outcome.value
