"""What crosses between the caller's process and the engine's. All of it is pickled."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tensorrt_llm._double.script import Script, Trap
from tensorrt_llm.bindings.executor import ContextPhaseParams, FinishReason, RequestPerfMetrics
from tensorrt_llm.conversation_params import ConversationParams
from tensorrt_llm.disaggregated_params import DisaggregatedParams
from tensorrt_llm.executor.outputs import TokenLogprobs
from tensorrt_llm.executor.request import LoRARequest
from tensorrt_llm.scheduling_params import SchedulingParams

if TYPE_CHECKING:
    from tensorrt_llm.sampling_params import BatchedLogitsProcessor, SamplingParams

# Bytes.
_MOST_SALT = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the engine's process needs of the arguments.

    ranks: attention-DP ranks, each with ``max_batch_size`` places. kv_tokens: of one rank; None: enough.
    """

    model: str
    script: Script
    step_ms: float
    transfers: str
    ranks: int
    world_size: int
    is_attention_dp: bool
    has_affinity: bool
    max_batch_size: int
    max_num_tokens: int
    max_beam_width: int
    max_seq_len: int | None
    stream_interval: int
    has_priority: bool
    is_overlapped: bool
    block_tokens: int
    kv_tokens: int | None
    has_block_reuse: bool
    event_buffer: int
    guided_backend: str | None
    has_stats: bool
    has_request_stats: bool
    stats_length: int
    has_lora: bool
    transceiver: str | None
    transfer_timeout_s: float
    restore_modes: dict[str, str] | None
    batched_processor: BatchedLogitsProcessor | None


@dataclass(slots=True, kw_only=True)
class GenerationRequest:
    """One request on its way to the engine. ``id`` is the client id."""

    prompt_token_ids: list[int]
    sampling_params: SamplingParams
    streaming: bool
    lora_request: LoRARequest | None = None
    disaggregated_params: DisaggregatedParams | None = None
    trace_headers: dict[str, str] | None = None
    scheduling_params: SchedulingParams | None = None
    conversation_params: ConversationParams | None = None
    cache_salt: str | None = None
    priority: float = 0.5
    id: int = 0
    trap: Trap | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for a salt that the compiled side would not take."""
        if self.cache_salt is not None and len(self.cache_salt.encode()) > _MOST_SALT:
            raise ValueError(f"cache_salt must be at most {_MOST_SALT} bytes in UTF-8")


@dataclass(frozen=True, slots=True)
class CancellingRequest:
    """End the request with this client id early."""

    id: int


@dataclass(frozen=True, slots=True)
class Call:
    """Run a method in the engine's process and answer under the same id."""

    id: int
    method: str
    args: tuple[object, ...] = ()
    kwargs: dict[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True)
class Quit:
    """Finish and leave."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The engine's process has loaded."""

    vocab_size: int
    max_seq_len: int
    total_blocks: int


@dataclass(frozen=True, slots=True)
class StartFailed:
    """It could not load, and says why."""

    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call returned, or the text of its failure."""

    id: int
    value: object = None
    error: str | None = None


@dataclass(slots=True, kw_only=True)
class Result:
    """The new tokens of one sequence, or all tokens of all beams.

    output_token_ids, finish_reasons: one, or one a beam. log_probs: of the new tokens.
    """

    sequence_index: int
    output_token_ids: list[list[int]]
    finish_reasons: list[FinishReason]
    is_final: bool
    log_probs: list[TokenLogprobs] | None = None
    cum_log_probs: list[float] | None = None
    prompt_logprobs: TokenLogprobs | None = None
    context_phase_params: ContextPhaseParams | None = None
    request_perf_metrics: RequestPerfMetrics | None = None
    decoding_iter: int = 0
    cached_tokens: int = 0
    avg_decoded_tokens_per_iter: float | None = None


@dataclass(frozen=True, slots=True)
class Response:
    """A result on its way to the request with this client id."""

    client_id: int
    result: Result
