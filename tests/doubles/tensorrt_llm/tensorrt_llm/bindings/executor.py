"""Stand-ins for the compiled request types: what the engine's process is given and gives back.

The real constructors run in the engine's process, so what they refuse is a late error of one request.
Here, too, nothing of this module is called before a request has been sent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum


class FinishReason(Enum):
    """Why the engine ended a sequence; the numbers are the double's own."""

    NOT_FINISHED = 0
    END_ID = 1
    STOP_WORDS = 2
    LENGTH = 3
    TIMED_OUT = 4
    CANCELLED = 5


class RequestType(Enum):
    """What the engine is to do with a request."""

    REQUEST_TYPE_CONTEXT_AND_GENERATION = 0
    REQUEST_TYPE_CONTEXT_ONLY = 1
    REQUEST_TYPE_GENERATION_ONLY = 2


@dataclass(frozen=True, slots=True)
class ContextPhaseParams:
    """What a decode engine is told about the prefill that was made elsewhere."""

    first_gen_tokens: list[int]
    req_id: int | None
    opaque_state: bytes | None
    draft_tokens: list[int] | None = None
    ctx_dp_rank: int | None = None
    ctx_info_endpoint: str | None = None

    def __post_init__(self) -> None:
        """Refuse what the compiled constructor cannot take. Raises TypeError."""
        tokens: object = self.first_gen_tokens
        if not isinstance(tokens, list) or any(type(each) is not int for each in tokens):
            raise TypeError("ContextPhaseParams: first_gen_tokens must be a list of int")
        if self.req_id is not None and type(self.req_id) is not int:
            raise TypeError("ContextPhaseParams: req_id must be an int")
        state: object = self.opaque_state
        if state is not None and not isinstance(state, bytes):
            raise TypeError("ContextPhaseParams: opaque_state must be bytes")


class GuideType(Enum):
    """The kinds of guide that a guided-decoding back-end knows."""

    JSON = 0
    JSON_SCHEMA = 1
    REGEX = 2
    EBNF_GRAMMAR = 3
    STRUCTURAL_TAG = 4


@dataclass(frozen=True, slots=True)
class GuidedDecodingParams:
    """One guide: its kind, and its text where the kind has one."""

    guide_type: GuideType
    guide: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingConfig:
    """The sampling options in the engine's own words. None: the engine's default."""

    beam_width: int = 1
    num_return_sequences: int | None = None
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

    def __post_init__(self) -> None:
        """Refuse what is out of the engine's ranges. Raises RuntimeError."""
        if self.repetition_penalty is not None and not self.repetition_penalty > 0:
            raise RuntimeError("SamplingConfig: repetition_penalty must be greater than 0")
        if self.top_k is not None and self.top_k < 0:
            raise RuntimeError("SamplingConfig: top_k must not be negative")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise RuntimeError("SamplingConfig: top_p must be in (0, 1]")
        if self.seed is not None and not 0 <= self.seed < 2**64:
            raise RuntimeError("SamplingConfig: seed must be an unsigned number of 64 bits")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputConfig:
    """What the engine is to give back beside the tokens."""

    return_log_probs: bool = False
    return_context_logits: bool = False
    return_generation_logits: bool = False
    exclude_input_from_output: bool = True
    return_encoder_output: bool = False
    return_perf_metrics: bool = False
    additional_model_outputs: list[str] | None = None


@dataclass(slots=True)
class TimingMetrics:
    """Moments of one request, since an origin of the engine's own; the size of its cache is in bytes."""

    arrival_time: timedelta = timedelta()
    first_scheduled_time: timedelta = timedelta()
    first_token_time: timedelta = timedelta()
    last_token_time: timedelta = timedelta()
    kv_cache_transfer_start: timedelta = timedelta()
    kv_cache_transfer_end: timedelta = timedelta()
    kv_cache_size: int = 0


@dataclass(slots=True)
class SpeculativeDecodingMetrics:
    """Counts of draft tokens; all zero without speculative decoding."""

    acceptance_rate: float = 0.0
    total_accepted_draft_tokens: int = 0
    total_draft_tokens: int = 0


@dataclass(slots=True)
class RequestPerfMetrics:
    """What a request that asked for performance numbers gets with its last response."""

    timing_metrics: TimingMetrics = field(default_factory=TimingMetrics)
    speculative_decoding: SpeculativeDecodingMetrics = field(default_factory=SpeculativeDecodingMetrics)
    first_iter: int | None = None
    last_iter: int | None = None
    iter: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCacheRetentionConfig:
    """How long and how strongly the cache of a request is kept; the double keeps no such rules."""

    token_range_retention_configs: list[object] = field(default_factory=list[object])
    decode_retention_priority: int = 35
    decode_duration_ms: timedelta | None = None
