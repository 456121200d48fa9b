"""What the sampling options refuse, each rule by the name of its field."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensorrt_llm.sampling_params import SamplingParams

INTEGERS = (
    *("end_id", "pad_id", "max_tokens", "n", "best_of", "top_k", "top_p_reset_ids", "seed", "min_tokens"),
    *(
        "prompt_ignore_length",
        "early_stopping",
        "no_repeat_ngram_size",
        "prompt_logprobs",
        "truncate_prompt_tokens",
    ),
)
NUMBERS = (
    *("top_p", "top_p_min", "top_p_decay", "temperature", "beam_search_diversity_rate", "repetition_penalty"),
    *("presence_penalty", "frequency_penalty", "length_penalty", "min_p"),
)
ID_LISTS = ("bad_token_ids", "stop_token_ids", "beam_width_array")


def refuse_foreign_numbers(params: SamplingParams) -> None:
    """Take Python's own numbers only. Raises TypeError.

    The real constructor looks at no type; the compiled one, which runs much later in another process, does.
    """
    for name in INTEGERS:
        _refuse_type(name, getattr(params, name), (int,))
    _refuse_type("logprobs", params.logprobs, (int, bool))
    for name in NUMBERS:
        _refuse_type(name, getattr(params, name), (int, float))
    for name in ID_LISTS:
        for number in getattr(params, name) or ():
            _refuse_type(f"an item of {name}", number, (int,))


def _refuse_type(name: str, value: object, allowed: tuple[type, ...]) -> None:
    if value is not None and type(value) not in allowed:
        words = " or ".join(each.__name__ for each in allowed)
        raise TypeError(f"{name} must be {words}, not {type(value).__name__}")


def refuse_out_of_range(params: SamplingParams) -> None:
    """Raises ValueError for a number that every revision refuses."""
    if params.top_p is not None and (params.top_p < 0 or params.top_p > 1):
        raise ValueError(f"require 0 <= top_p <= 1, got top_p={params.top_p}")
    if params.top_k is not None and params.top_k < 0:
        raise ValueError(f"require top_k >= 0, got top_k={params.top_k}")
    if params.temperature is not None and params.temperature < 0:
        raise ValueError(f"require temperature >= 0, got temperature={params.temperature}")
    if params.truncate_prompt_tokens is not None and params.truncate_prompt_tokens < 1:
        raise ValueError(f"truncate_prompt_tokens must be >= 1, got {params.truncate_prompt_tokens}")


def refuse_logprobs(params: SamplingParams) -> None:
    """Raises ValueError for a negative number, and for a simple format that is not possible.

    The upper bound of 100 is not sure for this release, so nothing is too many here.
    """
    for name in ("logprobs", "prompt_logprobs"):
        value, is_simple = getattr(params, name), getattr(params, f"{name}_simple_format")
        if value is not None and value < 0:
            raise ValueError(f"{name} must be positive, zero or None")
        if is_simple and value != 0:
            raise ValueError(f"{name}_simple_format=True requires {name} == 0, got {name}={value}")
    if params.logprobs_simple_format and params.use_beam_search:
        raise ValueError("logprobs_simple_format is not supported with beam search")


def thinking_budget_of(value: object) -> int | None:
    """Return the budget in tokens, None for an unlimited one. Raises ValueError."""
    if value is None or (value == -1 and not isinstance(value, float)):
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError("thinking_token_budget must be a non-negative integer or -1 for unlimited")
    return value


def word_ids(
    name: str, single: list[int] | None, words: str | list[str] | None, encoded: list[list[int]] | None
) -> list[list[int]]:
    """Return one list of ids for each single id and each word. Raises RuntimeError for words without ids."""
    if words is not None and encoded is None:
        raise RuntimeError(f"SamplingParams.{name} is not processed by the tokenizer, call the set-up first")
    return [[each] for each in single or ()] + (encoded or [])
