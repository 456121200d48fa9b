"""How a model's weights come into an engine, and how its layers are computed."""

from __future__ import annotations

from collections import defaultdict
from enum import Enum, StrEnum
from typing import Literal, Self

from pydantic import Field, NonNegativeInt, field_validator, model_validator

from tensorrt_llm._torch.virtual_memory import ExecutorMemoryType, RestoreMode
from tensorrt_llm.llmapi.strict_model import OpenModel, StrictBaseModel


class LoadFormat(Enum):
    """Where weights come from: GMS is a service that shares them between the processes of a node."""

    AUTO = 0
    DUMMY = 1
    VISION_ONLY = 2
    GMS = 3

    @classmethod
    def of(cls, value: object) -> LoadFormat:
        """Return the member of a name in any case or of a number. Raises ValueError, also for a bool."""
        if isinstance(value, cls):
            return value
        if isinstance(value, str) and value.upper() in cls.__members__:
            return cls[value.upper()]
        if isinstance(value, int) and not isinstance(value, bool):
            return cls(value)
        raise ValueError(f"Invalid LoadFormat: {value}")


class SamplerType(StrEnum):
    """Who samples; the first is deprecated."""

    TRTLLMSampler = "TRTLLMSampler"
    TorchSampler = "TorchSampler"
    auto = "auto"


class ModelExpressConfig(StrictBaseModel):
    """Weights from another instance that has them already. Times in seconds."""

    server_url: str | None = None
    server_query_timeout_s: NonNegativeInt | None = None
    preshard_strategy: Literal["per_module"] = "per_module"


class GmsConfig(StrictBaseModel):
    """Weights from the service of this node."""

    socket_path: str | None = None
    mode: Literal["auto", "rw", "ro"] = "auto"
    tag: str = "weights"

    @model_validator(mode="after")
    def _tag_is_not_blank(self) -> Self:
        if not self.tag.strip():
            raise ValueError("gms_config.tag must not be blank")
        return self


class MoeLoadBalancerConfig(StrictBaseModel):
    """Which expert is on which rank."""

    num_slots: int | None = None
    initial_global_assignments: dict[int, list[int]] | None = None
    layer_updates_per_iter: int = 0


MoeBackend = Literal[
    "AUTO",
    "CUTLASS",
    "CUTEDSL",
    "WIDEEP",
    "TRTLLM",
    "DEEPGEMM",
    "DENSEGEMM",
    "VANILLA",
    "TRITON",
    "MARLIN",
    "MEGAMOE_DEEPGEMM",
]
Nvfp4Backend = Literal["cutlass", "cublaslt", "cutedsl", "cuda_core", "marlin"]


class MoeConfig(StrictBaseModel):
    """How layers of experts are computed."""

    backend: MoeBackend = "AUTO"
    max_num_tokens: int | None = None
    load_balancer: object | None = None
    disable_finalize_fusion: bool = False
    use_low_precision_moe_combine: bool = False


class Nvfp4GemmConfig(StrictBaseModel):
    """Who multiplies matrices of four bits."""

    allowed_backends: list[Nvfp4Backend] = Field(
        default_factory=lambda: list[Nvfp4Backend](["cutlass", "cublaslt", "cuda_core"]), min_length=1
    )


class CpConfig(StrictBaseModel):
    """Context parallelism."""

    cp_type: Literal["ULYSSES", "STAR", "RING", "HELIX"] = "ULYSSES"
    tokens_per_block: int | None = None
    use_nccl_for_alltoall: bool | None = None
    fifo_version: int | None = None
    cp_anchor_size: int | None = None
    block_size: int | None = None

    @field_validator("cp_type", mode="before")
    @classmethod
    def _in_capitals(cls, cp_type: object) -> object:
        return cp_type.upper() if isinstance(cp_type, str) else cp_type


class DwdpConfig(StrictBaseModel):
    """Experts' weights that are spread over several prefill engines."""

    dwdp_size: int = 1
    num_groups: int = 1
    num_experts_per_worker: int = 0
    num_prefetch_experts: int = 0
    contention_opt: bool = False


def _default_modes() -> dict[ExecutorMemoryType, RestoreMode]:
    modes = defaultdict[ExecutorMemoryType, RestoreMode](_mode_of_others)
    modes[ExecutorMemoryType.KV_CACHE] = RestoreMode.NONE
    return modes


def _mode_of_others() -> RestoreMode:
    return RestoreMode.PINNED


class SleepConfig(StrictBaseModel):
    """What becomes of each kind of memory while an engine sleeps. A name of a mode is as good as the mode."""

    restore_modes: dict[ExecutorMemoryType, RestoreMode] = Field(default_factory=_default_modes)

    @field_validator("restore_modes", mode="before")
    @classmethod
    def _modes_by_name(cls, modes: object) -> object:
        if not isinstance(modes, dict):
            return modes
        return _default_modes() | {
            tag: RestoreMode[mode] if isinstance(mode, str) and mode in RestoreMode.__members__ else mode
            for tag, mode in modes.items()
        }


class LayerwiseBenchmarksConfig(StrictBaseModel):
    """Measurements of single layers."""

    calibration_mode: Literal["NONE", "MARK", "COLLECT"] = "NONE"
    calibration_file_path: str | None = None
    calibration_layer_indices: list[int] | None = None

    @model_validator(mode="after")
    def _collects_into_a_file(self) -> Self:
        if self.calibration_mode == "COLLECT" and not self.calibration_file_path:
            raise ValueError("calibration_file_path must not be empty with calibration_mode COLLECT")
        return self


class PrometheusMetricsConfig(OpenModel):
    """Buckets of the library's own histograms."""


class TelemetryConfig(OpenModel):
    """What the library reports about its use; the double reports nothing."""

    disabled: bool = False


class RayPlacementConfig(OpenModel):
    """Where Ray puts the workers."""


class SparseAttentionConfig(OpenModel):
    """Attention that looks at a part of the tokens; ``algorithm`` says which."""

    algorithm: str


class KvCacheCompressionConfig(StrictBaseModel):
    """A cache that forgets; ``algorithm`` says what."""

    algorithm: str


class DecodingBaseConfig(OpenModel):
    """Speculative decoding; ``decoding_type`` says by whom the draft is made."""

    decoding_type: str
    max_draft_len: NonNegativeInt | None = None
    speculative_model: str | None = None
