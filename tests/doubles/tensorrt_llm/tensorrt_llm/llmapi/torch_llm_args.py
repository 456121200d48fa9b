"""All arguments of an LLM on the PyTorch back-end, and the rules between them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

import yaml
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt, field_validator, model_validator

from tensorrt_llm.llmapi.base_llm_args import BaseLlmArgs, ParallelConfig
from tensorrt_llm.llmapi.cache_configs import KvCacheConnectorConfig
from tensorrt_llm.llmapi.graph_configs import (
    CudaGraphConfig,
    CudaGraphConfigType,
    MultimodalConfig,
    TorchCompileConfig,
    with_graph_mode,
)
from tensorrt_llm.llmapi.model_configs import (
    DwdpConfig,
    GmsConfig,
    LayerwiseBenchmarksConfig,
    LoadFormat,
    ModelExpressConfig,
    MoeConfig,
    MoeLoadBalancerConfig,
    Nvfp4GemmConfig,
    RayPlacementConfig,
    SamplerType,
    SleepConfig,
)
from tensorrt_llm.llmapi.scheduling_configs import AttentionDpConfig, ReorderRequestPolicyConfig

AllReduceStrategy = Literal[
    "AUTO",
    "NCCL",
    "UB",
    "MINLATENCY",
    "ONESHOT",
    "TWOSHOT",
    "LOWPRECISION",
    "MNNVL",
    "NCCL_SYMMETRIC",
]
# None returns to the default of these.
_NEVER_NONE = ("max_batch_size", "max_input_len", "max_beam_width", "max_num_tokens")
_EXPERT_SIZES = ("moe_cluster_parallel_size", "moe_tensor_parallel_size", "moe_expert_parallel_size")
# Taken by the LLM itself before the arguments are looked at.
_POPPED = "executor_cls"


class TorchLlmArgs(BaseLlmArgs):
    """Raises pydantic's ValidationError, a ValueError, for whatever does not fit."""

    garbage_collection_gen0_threshold: int = 20000
    cuda_graph_config: CudaGraphConfigType | None = Field(default_factory=CudaGraphConfig)
    multimodal_config: MultimodalConfig = Field(default_factory=MultimodalConfig)
    attention_dp_config: AttentionDpConfig | None = None
    disable_overlap_scheduler: bool = False
    moe_config: MoeConfig = Field(default_factory=MoeConfig)
    nvfp4_gemm_config: Nvfp4GemmConfig = Field(default_factory=Nvfp4GemmConfig)
    dwdp_config: DwdpConfig | None = None
    encoder_max_batch_size: PositiveInt | None = None
    encoder_max_num_tokens: PositiveInt | None = None
    attn_backend: str = "TRTLLM"
    sampler_type: str | SamplerType = SamplerType.auto
    sampler_force_async_worker: bool = False
    enable_speculative_beam_history_d2h: bool = False
    enable_early_first_token_response: bool = False
    enable_low_latency_host_dispatch: bool = False
    enable_iter_perf_stats: bool = False
    enable_iter_req_stats: bool = False
    print_iter_log: bool = False
    batch_wait_timeout_ms: NonNegativeFloat = 0
    batch_wait_timeout_iters: NonNegativeInt = 0
    batch_wait_max_tokens_ratio: float = Field(default=0, ge=0, le=1)
    torch_compile_config: TorchCompileConfig | None = None
    enable_autotuner: bool = True
    enable_layerwise_nvtx_marker: bool = False
    load_format: LoadFormat = LoadFormat.AUTO
    enable_min_latency: bool = False
    stream_interval: PositiveInt = 1
    force_dynamic_quantization: bool = False
    allreduce_strategy: AllReduceStrategy | None = "AUTO"
    checkpoint_loader: object | None = None
    checkpoint_format: str | None = None
    mx_config: ModelExpressConfig = Field(default_factory=ModelExpressConfig)
    gms_config: GmsConfig = Field(default_factory=GmsConfig)
    kv_connector_config: KvCacheConnectorConfig | None = None
    mm_encoder_only: bool = False
    disable_mm_encoder: bool = False
    encode_only: bool = False
    ray_worker_extension_cls: str | None = None
    ray_placement_config: RayPlacementConfig | None = Field(default=None, exclude=True)
    ray_worker_nsight_options: dict[str, str] | None = None
    sleep_config: SleepConfig | None = None
    reorder_policy_config: ReorderRequestPolicyConfig | None = None
    enable_resource_governor: bool = False
    use_cute_dsl_blockscaling_mm: bool = False
    use_cute_dsl_blockscaling_bmm: bool = False
    use_cute_dsl_bf16_bmm: bool = False
    use_cute_dsl_bf16_gemm: bool = False
    max_stats_len: int = Field(default=1000, ge=-1)
    layer_wise_benchmarks_config: LayerwiseBenchmarksConfig = Field(default_factory=LayerwiseBenchmarksConfig)
    backend: Literal["pytorch"] = "pytorch"

    @field_validator("cuda_graph_config", mode="before")
    @classmethod
    def _mode_of_graphs(cls, config: object) -> object:
        return with_graph_mode(config)

    @field_validator("multimodal_config", mode="before")
    @classmethod
    def _none_is_the_default(cls, config: object) -> object:
        return MultimodalConfig() if config is None else config

    @field_validator("load_format", mode="before")
    @classmethod
    def _load_format_by_name(cls, load_format: object) -> object:
        return LoadFormat.of(load_format)

    @field_validator("max_stats_len")
    @classmethod
    def _keeps_at_least_one(cls, length: int) -> int:
        return length if length == -1 else max(length, 1)

    @model_validator(mode="after")
    def _fill_in(self) -> Self:
        for name in _NEVER_NONE:
            if getattr(self, name) is None:
                setattr(self, name, type(self).model_fields[name].default)
        for name in _EXPERT_SIZES:
            if getattr(self, name) is None:
                setattr(self, name, -1)
        if self.checkpoint_format is not None:
            self.checkpoint_loader = None
        elif self.checkpoint_loader is None:
            self.checkpoint_format = "HF"
        self._parallel_config = ParallelConfig(
            self.tensor_parallel_size,
            self.pipeline_parallel_size,
            self.context_parallel_size,
            self.gpus_per_node or 1,
            self.enable_attention_dp,
        )
        return self

    @model_validator(mode="after")
    def _refuse_conflicts(self) -> Self:
        if self.skip_tokenizer_init and self.post_processor_hook is not None:
            raise ValueError("post_processor_hook is not supported together with skip_tokenizer_init")
        if self.encode_only and self.mm_encoder_only:
            raise ValueError("encode_only and mm_encoder_only are mutually exclusive")
        if self.disable_mm_encoder and self.mm_encoder_only:
            raise ValueError("disable_mm_encoder and mm_encoder_only are mutually exclusive")
        if (
            self.encode_only
            and self.torch_compile_config
            and self.torch_compile_config.enable_piecewise_cuda_graph
        ):
            raise ValueError("encode_only does not support enable_piecewise_cuda_graph")
        if self.load_format is LoadFormat.GMS and self.moe_config.load_balancer is not None:
            raise ValueError("load_format GMS is incompatible with moe_config.load_balancer")
        if self.peft_cache_config is not None and self.peft_cache_config.lora_prefetch_dir is not None:
            raise ValueError("peft_cache_config.lora_prefetch_dir is not supported")
        if self.enable_speculative_beam_history_d2h and self.sampler_force_async_worker:
            raise ValueError("enable_speculative_beam_history_d2h excludes sampler_force_async_worker")
        for name in ("ray_worker_extension_cls", "ray_placement_config"):
            if getattr(self, name) is not None and self.orchestrator_type != "ray":
                raise ValueError(f"{name} is only supported with orchestrator_type='ray'")
        return self

    @model_validator(mode="after")
    def _switch_off(self) -> Self:
        if self.skip_tokenizer_init:
            self.tokenizer = None
        is_disaggregated = self.cache_transceiver_config is not None and self.cache_transceiver_config.backend
        if self.disable_overlap_scheduler or is_disaggregated:
            self.enable_early_first_token_response = False
        return self

    @model_validator(mode="after")
    def _read_load_balancer(self) -> Self:
        balancer = self.moe_config.load_balancer
        if isinstance(balancer, str):
            if not Path(balancer).exists():
                raise FileNotFoundError(f"MoE load balancer config file not found: {balancer}")
            balancer = yaml.safe_load(Path(balancer).read_text(encoding="utf-8"))
        if isinstance(balancer, dict):
            self.moe_config.load_balancer = MoeLoadBalancerConfig(**balancer)
        return self


def resolve_llm_args(**arguments: object) -> TorchLlmArgs:
    """Return the arguments of an LLM as its constructor checks them: names first, then values.

    Raises ValueError that names an argument which there is not, and pydantic's ValidationError for the rest.
    """
    known = {*TorchLlmArgs.model_fields, "_mpi_session"}
    arguments.pop(_POPPED, None)
    for name in arguments:
        if name not in known:
            raise ValueError(f"LLM got an invalid argument: {name}")
    return TorchLlmArgs.model_validate(arguments)
