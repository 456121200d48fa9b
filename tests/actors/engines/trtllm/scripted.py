"""Results as TensorRT-LLM shows them, written by hand: what a test says of a request, state by state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from actors.engines.trtllm.answers.following import FollowedRequest, Reading
from protocols.spec import GenerationSpec, StopRules
from protocols.steps import Delta, EngineId

ME = EngineId(7)


@dataclass(slots=True)
class Output:
    """One choice as it stands: cumulative."""

    token_ids: list[int] = field(default_factory=list[int])
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    logprobs: list[Any] = field(default_factory=list[Any])
    prompt_logprobs: list[Any] = field(default_factory=list[Any])
    disaggregated_params: Any = None
    request_perf_metrics: Any = None


@dataclass(slots=True)
class Result:
    """One response."""

    outputs: list[Output]
    finished: bool = False
    error: str | None = None
    cached_tokens: int = 0


def spec(
    *, max_tokens: int = 8, n: int = 1, prompt: tuple[int, ...] = (1, 2, 3), **fields: Any
) -> GenerationSpec:
    """A request; stop rules by ``stop=``."""
    stop = fields.pop("stop", None) or StopRules(max_tokens=max_tokens)
    return GenerationSpec(prompt=prompt, n=n, stop=stop, **fields)


def no_timing(_output: Any) -> None:
    """An engine that measures nothing."""


def refuse(_params: Any) -> dict[str, Any]:
    """A hand-off that cannot be sent."""
    raise ValueError


def followed(asked: GenerationSpec, encode: Any = dict) -> FollowedRequest:
    """A request nothing has been heard of."""
    return FollowedRequest(ME, asked, Reading(encode, no_timing))


def heard(request: FollowedRequest, *results: Result) -> list[Delta]:
    """All that these results bring, in order."""
    return [delta for result in results for delta in request.hear(result)]


def told(deltas: list[Delta]) -> dict[int, list[int]]:
    """Token ids by choice."""
    found: dict[int, list[int]] = {}
    for delta in deltas:
        found.setdefault(delta.index, []).extend(delta.token_ids)
    return found
