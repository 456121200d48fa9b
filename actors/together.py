"""What a request may ask for alone, and not together."""

from __future__ import annotations

import math

from actors.prompt_length import PromptLength
from protocols.engine import EngineCapabilities
from protocols.errors import InvalidRequest
from protocols.spec import GenerationSpec, Stage


def check_together(spec: GenerationSpec, can: EngineCapabilities) -> None:
    """Raises InvalidRequest for a pair that the engine would refuse, or obey in part."""
    if spec.stage is not Stage.WHOLE and (spec.n > 1 or spec.search is not None):
        raise _too_many(spec, "1 choice; a KV cache is handed over for one answer only")
    is_beam = spec.search is not None and spec.search.is_beam
    if is_beam and spec.processors:
        allowed = "nothing with logits processors, which take one sequence at a time"
        raise InvalidRequest("sampling_options.use_beam_search", value=True, allowed=allowed)
    if spec.guided is not None and spec.stop.min_tokens > 1 and not can.holds_back_guided:
        allowed = (
            "at most 1 with a constraint: the engine would hold back the end of an answer that is complete"
        )
        raise InvalidRequest("stop_conditions.min_tokens", spec.stop.min_tokens, allowed)
    if spec.sequences > 1 and not is_beam and spec.sampling.leaves_no_choice and can.no_greedy_choices:
        raise _too_many(spec, f"1 choice without sampling, or a temperature; {can.no_greedy_choices}")
    if spec.output.prompt_logprobs is not None:
        _check_prompt_logprobs(spec, can)


def _check_prompt_logprobs(spec: GenerationSpec, can: EngineCapabilities) -> None:
    length = len(spec.prompt)
    longest = math.inf if can.prompt_logprob_tokens is None else can.prompt_logprob_tokens
    entries = math.inf if can.prompt_logprob_entries is None else can.prompt_logprob_entries // spec.n
    if length > min(longest, entries):
        allowed = f"with a prompt of at most {min(longest, entries)} tokens"
        raise InvalidRequest("output_options.prompt_logprobs", PromptLength(length), allowed)
    if length * spec.stop.max_tokens > entries:
        allowed = f"give a smaller one: with logprobs of so long a prompt at most {entries // length}"
        raise InvalidRequest("stop_conditions.max_tokens", spec.stop.max_tokens, allowed)


def _too_many(spec: GenerationSpec, allowed: str) -> InvalidRequest:
    """Names the option that asks for several."""
    if spec.n > 1 or spec.search is None:
        return InvalidRequest("sampling_options.n", spec.n, allowed)
    if spec.search.is_beam:
        return InvalidRequest("sampling_options.use_beam_search", value=True, allowed=allowed)
    return InvalidRequest("sampling_options.best_of", spec.search.width, allowed)
