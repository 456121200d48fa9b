"""What the framework's adapter takes from `generate()`."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict


class PromptTokensDetails(TypedDict):
    """Part of the usage that says how much of the prompt was found in the cache."""

    cached_tokens: int


class CompletionUsage(TypedDict):
    """Exact token counts of a request, over all its choices."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class TopLogprob(TypedDict):
    """One candidate of a position. ``token`` None: the frontend finds the text itself (seen with 1.4.2)."""

    rank: int
    token_id: int
    token: str | None
    logprob: float


class GenerateChunk(TypedDict):
    """Some new tokens of one choice; the last chunk of a request has reason and usage.

    log_probs, top_logprobs: as long as ``token_ids``; the chosen token is in both. Instead of minus
    infinity, -9999.0. cum_log_probs: of the choice so far.
    engine_data: ``prompt_logprobs``, one entry for each prompt token, on the last chunk: only of that one
    the frontend also makes ``nvext.prompt_logprobs``.
    disaggregated_params: on the last chunk of a prefill, for the decode worker.
    """

    token_ids: list[int]
    index: int
    log_probs: NotRequired[list[float]]
    top_logprobs: NotRequired[list[list[TopLogprob]]]
    cum_log_probs: NotRequired[float]
    engine_data: NotRequired[dict[str, Any]]
    finish_reason: NotRequired[str]
    stop_reason: NotRequired[int | str]
    disaggregated_params: NotRequired[dict[str, Any]]
    completion_usage: NotRequired[CompletionUsage]


def usage_of(prompt_tokens: int, completion_tokens: int, cached_tokens: int) -> CompletionUsage:
    """Usage as the framework passes it on. The sum is over all choices; the prompt counts once."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }


def probe_answer() -> GenerateChunk:
    """The whole answer to a health probe that the engine does not work at."""
    return {"token_ids": [], "index": 0, "finish_reason": "length", "completion_usage": usage_of(0, 0, 0)}
