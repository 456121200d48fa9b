"""The options of one request, as the Python API takes them.

Checks run in the constructor only: a field that is assigned later is not looked at again. Where the revisions
before and after 1.3.0rc22 differ, a value is refused only when both refuse it; the rule of greedy decoding is
the exception, where options are greedy when either of them says so.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING

from pydantic import BaseModel

from tensorrt_llm import sampling_checks
from tensorrt_llm.bindings import executor as bindings
from tensorrt_llm.logits_processors import BatchedLogitsProcessor, LogitsProcessor

if TYPE_CHECKING:
    import torch

    from tensorrt_llm.tokenizing import GenerationConfig, Tokenizer

__all__ = [
    "BatchedLogitsProcessor",
    "GuidedDecodingParams",
    "LogitsProcessor",
    "LogprobMode",
    "SamplingParams",
]

# Any non-empty text lifts the refusal of several greedy sequences, also "0"; read at every construction.
ALLOW_N_GREEDY = "TLLM_ALLOW_N_GREEDY_DECODING"


@dataclass(slots=True, kw_only=True)
class GuidedDecodingParams:
    """At most one guide for the text of a request. It is checked with the options that it is part of."""

    json: str | BaseModel | dict[str, object] | None = None
    regex: str | None = None
    grammar: str | None = None
    json_object: bool = False
    structural_tag: str | None = None

    def _validate(self) -> None:
        """Raises ValueError for more than one guide; an empty one counts as none."""
        given = [each.name for each in fields(self) if getattr(self, each.name)]
        if len(given) > 1:
            raise ValueError(f"only one guide can be used for a request, but got {len(given)}")


class LogprobMode(StrEnum):
    """Log probabilities of the model itself, or after temperature and the like."""

    RAW = "raw"
    PROCESSED = "processed"


@dataclass(slots=True, kw_only=True)
class SamplingParams:
    """What one request asks for. The LLM changes it: an instance serves one request."""

    end_id: int | None = None
    pad_id: int | None = None
    max_tokens: int | None = 32
    bad: str | list[str] | None = None
    bad_token_ids: list[int] | None = None
    _bad_word_ids: list[list[int]] | None = field(default=None, init=False, repr=False)
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool = False
    _stop_word_ids: list[list[int]] | None = field(default=None, init=False, repr=False)
    embedding_bias: torch.Tensor | list[float] | None = None
    logits_processor: LogitsProcessor | list[LogitsProcessor] | None = None
    apply_batched_logits_processor: bool = False

    n: int = 1
    best_of: int | None = None
    use_beam_search: bool = False
    logprobs_mode: LogprobMode = LogprobMode.RAW

    top_k: int | None = None
    top_p: float | None = None
    top_p_min: float | None = None
    top_p_reset_ids: int | None = None
    top_p_decay: float | None = None
    seed: int | None = None
    temperature: float | None = None
    min_tokens: int | None = None
    beam_search_diversity_rate: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    prompt_ignore_length: int | None = None
    length_penalty: float | None = None
    early_stopping: int | None = None
    no_repeat_ngram_size: int | None = None
    min_p: float | None = None
    beam_width_array: list[int] | None = None

    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logprobs_simple_format: bool = False
    prompt_logprobs_simple_format: bool = False
    return_context_logits: bool = False
    return_generation_logits: bool = False
    exclude_input_from_output: bool = True
    return_encoder_output: bool = False
    return_perf_metrics: bool = False
    additional_model_outputs: list[str] | None = None

    _context_logits_auto_enabled: bool = False
    _generation_logits_auto_enabled: bool = False
    _return_log_probs: bool = False

    lookahead_config: object | None = None
    guided_decoding: GuidedDecodingParams | None = None
    thinking_token_budget: int | None = None

    ignore_eos: bool = False
    detokenize: bool = True
    add_special_tokens: bool = True
    truncate_prompt_tokens: int | None = None
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    # Written by the LLM: how many tokens one response has.
    _stream_interval: int | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        """Fill in what follows from other fields, then check. Raises ValueError, TypeError."""
        if self.pad_id is None:
            self.pad_id = self.end_id
        self.best_of = self.best_of or self.n
        if self.embedding_bias is not None:
            self.embedding_bias = _float_tensor(self.embedding_bias)
        self._validate()

    def _validate(self) -> None:
        """Check all fields as they are now and give some their one form. Raises ValueError, TypeError."""
        sampling_checks.refuse_foreign_numbers(self)
        sampling_checks.refuse_out_of_range(self)
        self._refuse_greedy_choices()
        self.logprobs_mode = LogprobMode(self.logprobs_mode)
        if self.guided_decoding is not None:
            self.guided_decoding._validate()
        self.thinking_token_budget = sampling_checks.thinking_budget_of(self.thinking_token_budget)
        if isinstance(self.logprobs, bool):
            self.logprobs = 0 if self.logprobs else None
        sampling_checks.refuse_logprobs(self)

    def _refuse_greedy_choices(self) -> None:
        if self.best_of is not None and self.best_of < self.n:
            raise ValueError(f"best_of ({self.best_of}) cannot be less than n ({self.n})")
        several = self.best_of is not None and self.best_of > 1
        if several and self._greedy_decoding and not os.environ.get(ALLOW_N_GREEDY):
            raise ValueError(
                f"greedy decoding has one answer: set best_of=1, got {self.best_of}, or {ALLOW_N_GREEDY}"
            )

    @property
    def _greedy_decoding(self) -> bool:
        """Whether one of the revisions calls this greedy."""
        if self.use_beam_search:
            return False
        explicit = self.top_k == 1 or self.top_p == 0 or self.temperature == 0 or self.min_p == 1
        return explicit or (self.temperature is None and self.top_p is None and self.top_k is None)

    @property
    def _need_return_context_logits(self) -> bool:
        return self.return_context_logits and not self._context_logits_auto_enabled

    @property
    def _need_return_generation_logits(self) -> bool:
        return self.return_generation_logits and not self._generation_logits_auto_enabled

    def _setup(
        self,
        tokenizer: Tokenizer,
        hf_model_config: object,
        generation_config: GenerationConfig | None,
        add_special_tokens: bool = False,
    ) -> SamplingParams:
        """Take from the tokenizer and the model's configuration what was left open.

        The LLM calls it only while ``end_id`` is None: with an explicit one, words stay without ids.
        """
        if self.end_id is None:
            self.end_id = tokenizer.eos_token_id
            self.pad_id = self.end_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
        if self.bad is not None:
            self._bad_word_ids = [
                tokenizer.encode(w, add_special_tokens=add_special_tokens) for w in _words(self.bad)
            ]
        if self.stop is not None:
            self._stop_word_ids = [
                tokenizer.encode(w, add_special_tokens=add_special_tokens) for w in _words(self.stop)
            ]
        if generation_config is not None and generation_config.eos_token_id is not None:
            eos = generation_config.eos_token_id
            stops = self.stop_token_ids or []
            for each in [eos] if isinstance(eos, int) else eos:
                if each != self.end_id and each not in stops:
                    stops.append(each)
            self.stop_token_ids = stops or None
        return self

    def _get_bad_words(self) -> list[list[int]]:
        """Return the sequences that must not be generated. Raises RuntimeError for words without ids."""
        words: list[list[int]] = sampling_checks.word_ids(
            "bad", self.bad_token_ids, self.bad, self._bad_word_ids
        )
        return words

    def _get_stop_words(self) -> list[list[int]]:
        """Return the sequences that end the generation. Raises RuntimeError for words without ids."""
        words: list[list[int]] = sampling_checks.word_ids(
            "stop", self.stop_token_ids, self.stop, self._stop_word_ids
        )
        return words

    def _get_stop_reasons_and_words(self) -> list[tuple[str | int, list[int]]]:
        """Return each stop sequence with the reason that its match is reported as."""
        reasons: list[str | int] = [
            *(self.stop_token_ids or []),
            *(_words(self.stop) if self.stop is not None else []),
        ]
        return list(zip(reasons, self._get_stop_words(), strict=True))

    def _get_sampling_config(self) -> bindings.SamplingConfig:
        """Return the engine's form. Raises RuntimeError for what only the engine refuses."""
        same = {f.name for f in fields(bindings.SamplingConfig)} - {"beam_width", "num_return_sequences"}
        beams, sequences = (self.best_of or self.n, self.n) if self.use_beam_search else (1, self.best_of)
        values = {name: getattr(self, name) for name in same}
        return bindings.SamplingConfig(beam_width=beams, num_return_sequences=sequences, **values)

    def _get_output_config(self, is_pytorch_backend: bool = False) -> bindings.OutputConfig:
        """Return the engine's form; prompt logprobs need the context logits."""
        context_logits = self.return_context_logits or (
            is_pytorch_backend and self.prompt_logprobs is not None
        )
        return bindings.OutputConfig(
            return_log_probs=self.logprobs is not None if is_pytorch_backend else self._return_log_probs,
            return_context_logits=context_logits,
            return_generation_logits=self.return_generation_logits,
            exclude_input_from_output=self.exclude_input_from_output,
            return_encoder_output=self.return_encoder_output,
            return_perf_metrics=self.return_perf_metrics,
            additional_model_outputs=self.additional_model_outputs,
        )

    def _get_guided_decoding_params(self) -> bindings.GuidedDecodingParams | None:
        """Return the first guide there is: json_object, json, regex, grammar, structural_tag."""
        guided = self.guided_decoding
        if guided is None:
            return None
        if guided.json_object:
            return bindings.GuidedDecodingParams(bindings.GuideType.JSON)
        texts = (
            (bindings.GuideType.JSON_SCHEMA, _schema_text(guided.json)),
            (bindings.GuideType.REGEX, guided.regex),
            (bindings.GuideType.EBNF_GRAMMAR, guided.grammar),
            (bindings.GuideType.STRUCTURAL_TAG, guided.structural_tag),
        )
        return next(
            (bindings.GuidedDecodingParams(kind, text) for kind, text in texts if text is not None), None
        )


def _words(words: str | list[str]) -> list[str]:
    return [words] if isinstance(words, str) else words


def _schema_text(schema: str | BaseModel | dict[str, object] | None) -> str | None:
    if isinstance(schema, BaseModel):
        schema = schema.model_json_schema()
    return json.dumps(schema) if isinstance(schema, dict) else schema


def _float_tensor(bias: torch.Tensor | list[float]) -> torch.Tensor:
    import torch

    if isinstance(bias, torch.Tensor):
        return bias.detach().clone()
    return torch.tensor(bias, dtype=torch.float32)
