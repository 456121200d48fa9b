"""A spec in TensorRT-LLM's words: a fresh `SamplingParams` for every request, since the library changes them.

Nothing is left to the library's own defaults: 32 tokens, the same seed for everybody, and end ids that it
reads from the model only where it has a tokenizer. Whatever is checked there is checked at construction,
so that all of it is given at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from actors.engines.trtllm.library import Library
from actors.engines.trtllm.processors.holding_back import HoldBack
from protocols.spec import GenerationSpec, Sampling, Search, Stage, StopRules

# Ends nothing. The library's ``ignore_eos`` would switch off stop ids, too.
_NO_END = -1
# Of both kinds of candidates: 0 was read as "none" by some of the library's versions.
_LEAST_LOGPROBS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StopIds:
    """Which ids end a choice, and who sees to it.

    end: the one that the engine holds back until ``min_tokens`` are out. engine: others that it ends at.
    late: others that the driver ends at, since the engine would not wait for ``min_tokens``.
    """

    end: int
    engine: tuple[int, ...]
    late: frozenset[int]


def stop_ids(stop: StopRules) -> StopIds:
    """Of a request with ``min_tokens`` the driver sees to all but the first end id."""
    ends = sorted(stop.eos_token_ids)
    end = ends[0] if ends else _NO_END
    others = (stop.eos_token_ids | stop.stop_token_ids) - {end}
    is_late = stop.min_tokens > 0
    return StopIds(
        end=end,
        engine=() if is_late else tuple(sorted(others)),
        late=frozenset(others) if is_late else frozenset(),
    )


def hold_back(spec: GenerationSpec) -> HoldBack | None:
    """What keeps late ids from being chosen too early; a prefill's token is the answer's first.

    A constraint that is complete leaves nothing but ends: none of them is held back then.
    """
    late = stop_ids(spec.stop).late
    if not late or spec.guided is not None:
        return None
    return HoldBack(tuple(sorted(late)), len(spec.prompt) + spec.stop.min_tokens)


def sampling_params(
    spec: GenerationSpec, library: Library, guided: object = None, processors: Sequence[object] = ()
) -> Any:
    """guided, processors: what `guiding` and `processors` made for this request, and `hold_back`.

    Raises what the library raises for options that it does not like together.
    """
    is_prefill = spec.stage is Stage.PREFILL
    options: dict[str, Any] = {
        "seed": spec.sampling.seed,
        "n": spec.n,
        "detokenize": False,
        "add_special_tokens": False,
        "logprobs": _logprobs(spec.output.logprobs, is_ranked=_is_ranked(spec.search)),
        "prompt_logprobs": _logprobs(spec.output.prompt_logprobs),
        "guided_decoding": guided,
        "logits_processor": list(processors) or None,
        "thinking_token_budget": None if is_prefill else spec.thinking_tokens,
        # A prefill is over when its KV cache has been read, which only these figures tell.
        "return_perf_metrics": is_prefill,
        **_lengths(spec.stop, is_prefill=is_prefill),
        **_choice(spec.sampling),
        **_search(spec.search),
    }
    return library.SamplingParams(**{name: value for name, value in options.items() if value is not None})


def _lengths(rules: StopRules, *, is_prefill: bool) -> dict[str, Any]:
    """When a choice ends."""
    stop = stop_ids(rules)
    # The library sets 1 for a prefill by itself, after it has checked that the minimum is not above it.
    most = 1 if is_prefill else rules.max_tokens
    return {
        "max_tokens": most,
        # Until then the engine holds its end id back. Without one it would take the last id of all for it.
        "min_tokens": (min(rules.min_tokens, most) or None) if stop.end != _NO_END else None,
        "end_id": stop.end,
        "pad_id": max(stop.end, 0),
        "stop_token_ids": list(stop.engine) or None,
        # Ids that end an answer are part of it; the frontend leaves out what is not for people.
        "include_stop_str_in_output": True,
    }


def _choice(sampling: Sampling) -> dict[str, Any]:
    """How a token is chosen. What is neutral is left out: some checks count options, not their values."""
    options: dict[str, Any] = {"temperature": sampling.temperature}
    if not sampling.is_greedy:
        options["top_k"] = sampling.top_k
        options["top_p"] = sampling.top_p
        options["min_p"] = sampling.min_p or None
    elif sampling.temperature:
        options["top_k"] = 1
    neutral = Sampling()
    for name in ("repetition_penalty", "presence_penalty", "frequency_penalty"):
        if getattr(sampling, name) != getattr(neutral, name):
            options[name] = getattr(sampling, name)
    return options


def _search(search: Search | None) -> dict[str, Any]:
    if search is None:
        return {}
    options: dict[str, Any] = {"best_of": search.width}
    if search.is_beam:
        options["use_beam_search"] = True
        options["length_penalty"] = search.length_penalty
    return options


def _is_ranked(search: Search | None) -> bool:
    """Whether the library finds the best by sums of logprobs that it has only where it was asked for some.

    Without them all are equally good, and the first ones come back. Beams have sums of their own.
    """
    return search is not None and not search.is_beam


def _logprobs(asked: int | None, *, is_ranked: bool = False) -> int | None:
    if asked is None and not is_ranked:
        return None
    return max(_LEAST_LOGPROBS, asked or 0)
