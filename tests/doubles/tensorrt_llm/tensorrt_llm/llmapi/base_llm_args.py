"""The arguments of an LLM that do not depend on its back-end, and how many devices they ask for."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, NonNegativeInt, PrivateAttr, field_validator

from tensorrt_llm.llmapi.cache_configs import CacheTransceiverConfig, KvCacheConfig, PeftCacheConfig
from tensorrt_llm.llmapi.model_configs import (
    CpConfig,
    DecodingBaseConfig,
    KvCacheCompressionConfig,
    PrometheusMetricsConfig,
    SparseAttentionConfig,
    TelemetryConfig,
)
from tensorrt_llm.llmapi.scheduling_configs import SchedulerConfig
from tensorrt_llm.llmapi.strict_model import StrictBaseModel
from tensorrt_llm.lora_helper import LoraConfig

# How many devices this machine seems to have.
GPUS = "DOUBLE_GPUS"


def visible_gpus() -> int:
    """Return the number of devices of this machine, by the environment; 1 when it says nothing."""
    return int(os.environ.get(GPUS) or 1)


@dataclass(frozen=True, slots=True)
class ParallelConfig:
    """How a model is spread. Ranks are the product of the three sizes."""

    tp_size: int
    pp_size: int
    cp_size: int
    gpus_per_node: int
    enable_attention_dp: bool

    @property
    def world_size(self) -> int:
        """How many ranks the engine has."""
        return self.tp_size * self.pp_size * self.cp_size

    @property
    def world_size_per_node(self) -> int:
        """How many of the ranks are on one machine."""
        return self.world_size // max(1, math.ceil(self.world_size / self.gpus_per_node))

    @property
    def devices(self) -> list[int]:
        """The ranks' devices."""
        return list(range(self.world_size))


class BaseLlmArgs(StrictBaseModel):
    """Arguments that every back-end takes. Looking at the devices is part of the check, as in the library."""

    model: str | Path
    tokenizer: Any = None
    tokenizer_mode: Literal["auto", "slow"] = "auto"
    custom_tokenizer: str | None = None
    post_processor_hook: str | None = None
    skip_tokenizer_init: bool = False
    trust_remote_code: bool = False
    tensor_parallel_size: int = 1
    dtype: str = "auto"
    revision: str | None = None
    tokenizer_revision: str | None = None
    model_kwargs: dict[str, Any] | None = None
    pipeline_parallel_size: int = 1
    context_parallel_size: int = 1
    gpus_per_node: int | None = Field(default=None, validate_default=True)
    moe_cluster_parallel_size: int | None = None
    moe_tensor_parallel_size: int | None = None
    moe_expert_parallel_size: int | None = None
    enable_attention_dp: bool = False
    enable_lm_head_tp_in_adp: bool = False
    pp_partition: list[int] | None = None
    cp_config: CpConfig | None = None
    enable_lora: bool = False
    lora_config: LoraConfig | None = None
    kv_cache_config: KvCacheConfig = Field(default_factory=KvCacheConfig)
    enable_chunked_prefill: bool = False
    guided_decoding_backend: Literal["xgrammar", "llguidance"] | None = None
    batched_logits_processor: object | None = None
    iter_stats_max_iterations: int | None = Field(default=None, ge=-1)
    request_stats_max_iterations: int | None = Field(default=None, ge=-1)
    peft_cache_config: PeftCacheConfig | None = None
    scheduler_config: SchedulerConfig = Field(default_factory=SchedulerConfig)
    cache_transceiver_config: CacheTransceiverConfig | None = None
    sparse_attention_config: SparseAttentionConfig | None = None
    kv_cache_compression_config: KvCacheCompressionConfig | None = None
    speculative_config: DecodingBaseConfig | None = None
    max_batch_size: int | None = 2048
    max_input_len: int | None = 1024
    max_seq_len: int | None = None
    max_beam_width: int | None = 1
    max_num_tokens: int | None = 8192
    gather_generation_logits: bool = False
    num_postprocess_workers: int = 0
    postprocess_tokenizer_dir: str | None = None
    reasoning_parser: str | None = None
    decoding_config: object | None = None
    mpi_session: object | None = Field(default=None, alias="_mpi_session", exclude=True)
    otlp_traces_endpoint: str | None = None
    return_perf_metrics: bool = False
    perf_metrics_max_requests: NonNegativeInt = 0
    prometheus_metrics_config: PrometheusMetricsConfig | None = None
    enable_energy_metrics: bool = False
    orchestrator_type: Literal["rpc", "ray"] | None = None
    env_overrides: dict[str, str] | None = None
    telemetry_config: TelemetryConfig = Field(default_factory=TelemetryConfig)

    _parallel_config: ParallelConfig | None = PrivateAttr(default=None)

    @property
    def parallel_config(self) -> ParallelConfig:
        """How the model is spread."""
        assert self._parallel_config is not None
        return self._parallel_config

    @field_validator("env_overrides", mode="before")
    @classmethod
    def _as_texts(cls, overrides: object) -> object:
        if not isinstance(overrides, dict):
            return overrides
        return {str(name): str(value) for name, value in overrides.items()}

    @field_validator("gpus_per_node", mode="before")
    @classmethod
    def _count_devices(cls, count: object) -> object:
        gpus = visible_gpus()
        if gpus == 0:
            raise RuntimeError("No CUDA GPUs are available")
        return gpus if count is None else count
