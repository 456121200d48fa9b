"""From the library's options to what the engine behind the double is told: the worker's side of a request.

It follows the facts about the library, and nothing that the service does: what the service gets wrong shows
here. Whatever this engine cannot do is refused, late, as the library's worker refuses.
"""

from __future__ import annotations

from protocols.spec import GenerationSpec, Output, Sampling, StopRules
from tensorrt_llm._double.ending import EndRules
from tensorrt_llm._double.late import Late
from tensorrt_llm._double.wire import GenerationRequest, Settings
from tensorrt_llm.bindings.executor import RequestType
from tensorrt_llm.sampling_params import SamplingParams

# Options that the engine behind the double does not have, and what they are when they are not used.
_NOT_THERE: dict[str, object] = {
    "bad": None,
    "bad_token_ids": None,
    "embedding_bias": None,
    "top_p_min": None,
    "top_p_reset_ids": None,
    "top_p_decay": None,
    "beam_search_diversity_rate": None,
    "prompt_ignore_length": None,
    "no_repeat_ngram_size": None,
    "beam_width_array": None,
    "return_context_logits": False,
    "return_generation_logits": False,
    "return_encoder_output": False,
    "additional_model_outputs": None,
    "lookahead_config": None,
    "truncate_prompt_tokens": None,
}


def spec_of(request: GenerationRequest, settings: Settings, vocab_size: int, longest: int) -> GenerationSpec:
    """One request for the engine. longest: prompt plus output in tokens. Raises Late."""
    sampling = request.sampling_params
    _refuse_what_is_not_there(sampling)
    _check_prompt(request.prompt_token_ids, vocab_size, longest)
    _check_stage(request, settings)
    try:
        width = sampling._get_sampling_config().beam_width
    except (RuntimeError, TypeError) as exc:
        raise Late(str(exc)) from exc
    if width > settings.max_beam_width:
        raise Late(f"beam width {width} exceeds max_beam_width ({settings.max_beam_width})")
    return GenerationSpec(
        prompt=tuple(request.prompt_token_ids),
        stop=_stop_rules(sampling, longest - len(request.prompt_token_ids)),
        sampling=_sampling(sampling),
        output=Output(logprobs=_logprobs(sampling), prompt_logprobs=sampling.prompt_logprobs),
        n=sampling.best_of or sampling.n,
        cache_salt=request.cache_salt,
    )


def stage_of(request: GenerationRequest) -> RequestType:
    """What of the request this engine does."""
    params = request.disaggregated_params
    return RequestType.REQUEST_TYPE_CONTEXT_AND_GENERATION if params is None else params.get_request_type()


def end_rules_of(sampling: SamplingParams, most_tokens: int, has_length_first: bool) -> EndRules:
    """What ends an answer. Before ``min_tokens`` stop words do, and the engine behind is not told of them."""
    words: list[list[int]] = []
    if sampling.min_tokens and not sampling.ignore_eos:
        words = sampling._get_stop_words()
    return EndRules(
        most_tokens=most_tokens,
        early_stops=frozenset(word[0] for word in words) - {sampling.end_id},
        end_id=None if sampling.end_id is None or sampling.end_id < 0 else sampling.end_id,
        has_length_first=has_length_first,
    )


def _refuse_what_is_not_there(sampling: SamplingParams) -> None:
    for name, unused in _NOT_THERE.items():
        value = getattr(sampling, name)
        if value is not None and value is not unused:
            raise Late(f"the engine of the double cannot do {name}")


def _check_prompt(prompt: list[int], vocab_size: int, longest: int) -> None:
    if len(prompt) >= longest:
        raise Late(f"the prompt of {len(prompt)} tokens reaches max_seq_len ({longest})")
    if not all(0 <= each < vocab_size for each in prompt):
        raise Late("Token ID out of range")


def _check_stage(request: GenerationRequest, settings: Settings) -> None:
    try:
        stage = stage_of(request)
    except ValueError as exc:
        raise Late(str(exc)) from exc
    if stage is not RequestType.REQUEST_TYPE_CONTEXT_AND_GENERATION and settings.transceiver is None:
        raise Late("AssertionError: cache_transceiver_config is needed for context_only and generation_only")


def _stop_rules(sampling: SamplingParams, room: int) -> StopRules:
    """With ignore_eos the engine is told of no end and of no stop word. Raises Late."""
    if sampling.max_tokens is not None and sampling.max_tokens <= 0:
        raise Late(f"max_tokens must be greater than 0, but got {sampling.max_tokens}")
    most = room if sampling.max_tokens is None else min(sampling.max_tokens, room)
    try:
        words = sampling._get_stop_words()
    except RuntimeError as exc:
        raise Late(str(exc)) from exc
    if any(len(word) != 1 for word in words):
        raise Late("the engine of the double cannot do stop words of several tokens")
    if sampling.ignore_eos:
        return StopRules(max_tokens=most, min_tokens=min(sampling.min_tokens or 0, most))
    end_ids = frozenset() if sampling.end_id is None or sampling.end_id < 0 else frozenset({sampling.end_id})
    return StopRules(
        max_tokens=most,
        min_tokens=min(sampling.min_tokens or 0, most),
        eos_token_ids=end_ids,
        # The end id is looked at first.
        # Before min_tokens the engine holds back the end id alone: then stop words are looked for elsewhere.
        stop_token_ids=frozenset() if sampling.min_tokens else frozenset(word[0] for word in words) - end_ids,
    )


def _sampling(sampling: SamplingParams) -> Sampling:
    """None is what the engine takes for it, which is not always what the field's name suggests."""
    is_open = sampling.temperature is None and sampling.top_k is None and sampling.top_p is None
    is_greedy = is_open or sampling.temperature == 0 or sampling.top_k == 1 or sampling.top_p == 0
    if sampling.use_beam_search:
        # Beams of this engine are samples: several of the greedy one would be the same.
        is_greedy = False
    warm = 1.0 if sampling.temperature is None else sampling.temperature
    return Sampling(
        temperature=0.0 if is_greedy else warm or 1.0,
        top_k=0 if is_greedy else sampling.top_k or 0,
        top_p=1.0 if is_greedy or sampling.top_p is None else sampling.top_p,
        min_p=0.0 if is_greedy else sampling.min_p or 0.0,
        repetition_penalty=_or(sampling.repetition_penalty, 1.0),
        presence_penalty=_or(sampling.presence_penalty, 0.0),
        frequency_penalty=_or(sampling.frequency_penalty, 0.0),
        seed=sampling.seed or 0,
    )


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _logprobs(sampling: SamplingParams) -> int | None:
    """Beams are ranked by them, whether or not they were asked for."""
    return 0 if sampling.logprobs is None and sampling.use_beam_search else sampling.logprobs
