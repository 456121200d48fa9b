"""Where keys and values of attention live, how they reach another engine, and who else may have them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, field_validator, model_validator

from tensorrt_llm.llmapi.strict_model import StrictBaseModel

_DTYPES = frozenset({"auto", "fp8", "nvfp4", "float16", "bfloat16", "float32", "int8"})
_PRESETS = ("lmcache", "lmcache-mp", "kvbm")


class KvCacheConfig(StrictBaseModel):
    """The paged cache of one engine. Sizes in tokens or bytes; the smallest of the limits wins."""

    enable_block_reuse: bool = True
    max_tokens: int | None = None
    max_attention_window: list[int] | None = Field(default=None, min_length=1)
    sink_token_length: int | None = None
    free_gpu_memory_fraction: float | None = Field(default=0.9, ge=0, le=1)
    host_cache_size: int | None = None
    disk_cache_size: NonNegativeInt | None = None
    disk_cache_path: str | None = None
    cross_kv_cache_fraction: float | None = Field(default=None, ge=0, le=1)
    secondary_offload_min_priority: int | None = None
    event_buffer_max_size: int = 0
    attention_dp_events_gather_period_ms: int = 5
    enable_partial_reuse: bool = True
    copy_on_partial_reuse: bool = True
    use_uvm: bool = False
    max_gpu_total_bytes: NonNegativeInt = 0
    iteration_stats_interval: PositiveInt = 1
    dtype: str = "auto"
    mamba_ssm_cache_dtype: Literal["auto", "float16", "bfloat16", "float32"] = "auto"
    mamba_ssm_stochastic_rounding: bool = False
    mamba_ssm_philox_rounds: int = Field(default=10, ge=1)
    tokens_per_block: int = 32
    mamba_state_cache_interval: PositiveInt = 256
    use_kv_cache_manager_v2: bool | Literal["auto"] = "auto"
    enable_swa_scratch_reuse: bool = False
    kv_cache_event_hash_algo: Literal["auto", "v1_block_key", "v2_sha256", "v2_sha256_64"] = "auto"
    max_util_for_resume: float = Field(default=0.95, ge=0, le=1)
    enable_kv_pool_rebalance: bool = False
    disk_prefetch_num_reqs: int = Field(default=0, ge=0)
    pool_ratio: list[float] | None = Field(default=None, min_length=1)
    avg_seq_len: PositiveInt | None = None
    block_reuse_policy: Literal["all_reusable", "per_request"] = "all_reusable"

    @field_validator("dtype")
    @classmethod
    def _known_dtype(cls, dtype: str) -> str:
        if dtype.lower() not in _DTYPES:
            raise ValueError(f"kv_cache_config.dtype must be one of {', '.join(sorted(_DTYPES))}")
        return dtype.lower()

    @field_validator("free_gpu_memory_fraction")
    @classmethod
    def _is_a_share(cls, share: float | None) -> float | None:
        # Null is in the type, and breaks the comparison: a TypeError, as in the library.
        if not 0 <= share <= 1:  # type: ignore[operator]  # pyright: ignore[reportOptionalOperand]
            raise ValueError("kv_cache_config.free_gpu_memory_fraction must be a float between 0 and 1")
        return share

    @field_validator("max_attention_window")
    @classmethod
    def _positive_windows(cls, windows: list[int] | None) -> list[int] | None:
        if windows is not None and any(each <= 0 for each in windows):
            raise ValueError("kv_cache_config.max_attention_window values must be positive")
        return windows

    @field_validator("pool_ratio")
    @classmethod
    def _whole_ratio(cls, ratio: list[float] | None) -> list[float] | None:
        if ratio is not None and (min(ratio) <= 0 or not math.isclose(sum(ratio), 1.0, abs_tol=1e-6)):
            raise ValueError("kv_cache_config.pool_ratio values must be positive and sum to 1.0")
        return ratio

    @model_validator(mode="after")
    def _disk_has_a_directory(self) -> Self:
        if self.disk_cache_size and not (self.disk_cache_path and Path(self.disk_cache_path).is_dir()):
            raise ValueError(
                "kv_cache_config.disk_cache_path must be a directory when disk_cache_size is set"
            )
        return self


class CacheTransceiverConfig(StrictBaseModel):
    """How a prefill engine hands its cache to a decode engine; without a backend it cannot."""

    backend: Literal["DEFAULT", "UCX", "NIXL", "MOONCAKE", "MPI"] | None = None
    transceiver_runtime: Literal["CPP", "PYTHON", "auto"] | None = "auto"
    max_tokens_in_buffer: int | None = None
    kv_transfer_timeout_ms: PositiveInt | None = 60000
    kv_transfer_sender_future_timeout_ms: PositiveInt | None = 1000
    kv_transfer_poll_interval_ms: PositiveInt | None = 5000
    kv_cache_bounce_size_mb: int = Field(default=0, ge=0)


class KvCacheConnectorConfig(StrictBaseModel):
    """Somebody who keeps blocks elsewhere: a preset by name, or a module and its two classes."""

    connector: str | None = None
    connector_module: str | None = None
    connector_scheduler_class: str | None = None
    connector_worker_class: str | None = None
    server_url: str | None = None

    @model_validator(mode="after")
    def _preset_or_classes(self) -> Self:
        if self.connector is not None and self.connector not in _PRESETS:
            raise ValueError(f"unknown connector preset {self.connector!r}: known are {', '.join(_PRESETS)}")
        parts = ("connector_module", "connector_scheduler_class", "connector_worker_class")
        missing = [part for part in parts if getattr(self, part) is None]
        if self.connector is None and missing:
            raise ValueError(f"{missing[0]} is required when no connector is named")
        return self


class PeftCacheConfig(StrictBaseModel):
    """Where adapters' weights are kept. Sizes in bytes, or as a part of the device's memory."""

    num_host_module_layer: int = 0
    num_device_module_layer: int = 0
    optimal_adapter_size: int = 8
    max_adapter_size: int = 64
    num_put_workers: int = 1
    num_ensure_workers: int = 1
    num_copy_streams: int = 1
    max_pages_per_block_host: int = 24
    max_pages_per_block_device: int = 8
    device_cache_percent: float = 0.02
    host_cache_size: int = 1024**3
    lora_prefetch_dir: str | None = None
