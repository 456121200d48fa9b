"""What `generate_async` looks at before a request is sent: its inputs and what it changes in the options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensorrt_llm._double.settings import end_ids_of
from tensorrt_llm.disaggregated_params import DisaggregatedParams
from tensorrt_llm.executor.utils import RequestError
from tensorrt_llm.sampling_params import SamplingParams

if TYPE_CHECKING:
    from tensorrt_llm.llmapi.llm_args import TorchLlmArgs
    from tensorrt_llm.tokenizing import Tokenizer

_REFUSED_KEYS = (
    "encoder_inputs",
    "encoder_input_token_ids",
    "decoder_input_token_ids",
    "multi_item_part_lens",
)
_MULTIMODAL_KEYS = ("multi_modal_data", "multi_modal_embeddings")


@dataclass
class PreprocessedInputs:
    """A prompt that needs no more work on the calling thread."""

    prompt_token_ids: list[int]
    query_token_ids: list[int] | None = None
    multimodal_params: object | None = None
    encoder_input_token_ids: list[int] | None = None


@dataclass
class EndIds:
    """What is read of a model's generation configuration."""

    eos_token_id: int | list[int] | None


def prepared_sampling(
    given: object, args: TorchLlmArgs, tokenizer: Tokenizer | None, disaggregated: DisaggregatedParams | None
) -> SamplingParams:
    """The caller's own object, changed in place. Raises TypeError, ValueError."""
    sampling = SamplingParams() if given is None else given
    if not isinstance(sampling, SamplingParams):
        raise TypeError(f"sampling_params must be a SamplingParams, but got {type(given).__name__}")
    if sampling.end_id is None:
        if tokenizer is None:
            raise ValueError("without a tokenizer end_id must be given")
        sampling._setup(tokenizer, None, EndIds(end_ids_of(str(args.model))))
    elif sampling.pad_id is None:
        sampling.pad_id = sampling.end_id
    sampling._stream_interval = args.stream_interval
    sampling.return_perf_metrics = sampling.return_perf_metrics or args.return_perf_metrics
    _add_thinking_budget(sampling, args, tokenizer)
    if disaggregated is not None and disaggregated.request_type == "context_only":
        sampling.max_tokens = 1
    return sampling


def prompt_of(inputs: object, tokenizer: Tokenizer | None) -> tuple[str | None, list[int]]:
    """Text where there is any, and token ids. Raises TypeError, ValueError, IndexError, AssertionError."""
    if isinstance(inputs, PreprocessedInputs):
        return None, _checked(inputs.prompt_token_ids)
    if isinstance(inputs, dict):
        return _prompt_of_dict(inputs, tokenizer)
    if isinstance(inputs, str):
        return inputs, _encoded(inputs, tokenizer)
    if isinstance(inputs, list):
        return None, _checked(inputs)
    raise TypeError(f"inputs of type {type(inputs).__name__} are not supported")


def check_length(prompt: list[int], args: TorchLlmArgs, disaggregated: DisaggregatedParams | None) -> None:
    """Raises RequestError for what one pass cannot hold."""
    if disaggregated is not None and disaggregated.request_type == "generation_only":
        return
    longest = args.max_num_tokens
    if args.enable_chunked_prefill or longest is None:
        return
    if len(prompt) / args.context_parallel_size > longest:
        raise RequestError(
            f"the prompt of {len(prompt)} tokens exceeds max_num_tokens ({longest}) "
            "and chunked prefill is off"
        )


def _prompt_of_dict(inputs: dict[str, object], tokenizer: Tokenizer | None) -> tuple[str | None, list[int]]:
    for key in _REFUSED_KEYS:
        if key in inputs:
            raise ValueError(f"{key} is not supported")
    for key in _MULTIMODAL_KEYS:
        if inputs.get(key):
            raise ValueError(f"the double has no model for {key}")
    ids = inputs.get("prompt_token_ids")
    if isinstance(ids, list):
        return None, _checked(ids)
    text = inputs.get("prompt")
    if isinstance(text, str):
        return text, _encoded(text, tokenizer)
    raise TypeError("a dictionary must have prompt or prompt_token_ids")


def _checked(ids: list[int]) -> list[int]:
    """Plain integers, all of them; the library looks at the first one only, and fails later for others."""
    assert isinstance(ids[0], int), "prompt_token_ids must be int"
    assert all(type(each) is int for each in ids), "prompt_token_ids must be int"
    return ids


def _encoded(text: str, tokenizer: Tokenizer | None) -> list[int]:
    if tokenizer is None:
        raise ValueError("a tokenizer is needed for a text prompt")
    return _checked(tokenizer.encode(text, add_special_tokens=True))


def _add_thinking_budget(sampling: SamplingParams, args: TorchLlmArgs, tokenizer: Tokenizer | None) -> None:
    if sampling.thinking_token_budget is None:
        return
    if args.reasoning_parser is None or tokenizer is None:
        raise ValueError("thinking_token_budget needs a reasoning parser and a tokenizer")
    from tensorrt_llm.llmapi.thinking_budget import add_thinking_budget_logits_processor

    add_thinking_budget_logits_processor(
        sampling, reasoning_parser=args.reasoning_parser, tokenizer=tokenizer
    )
