"""The arguments of an LLM and their parts, where the library has them."""

from tensorrt_llm._torch.virtual_memory import ExecutorMemoryType
from tensorrt_llm.llmapi.base_llm_args import BaseLlmArgs
from tensorrt_llm.llmapi.cache_configs import (
    CacheTransceiverConfig,
    KvCacheConfig,
    KvCacheConnectorConfig,
    PeftCacheConfig,
)
from tensorrt_llm.llmapi.extra_options import (
    update_llm_args_with_extra_dict,
    update_llm_args_with_extra_options,
)
from tensorrt_llm.llmapi.graph_configs import (
    CudaGraphConfig,
    DecodeCudaGraphConfig,
    EncodeCudaGraphConfig,
    MultimodalConfig,
    TorchCompileConfig,
)
from tensorrt_llm.llmapi.model_configs import (
    CpConfig,
    DecodingBaseConfig,
    DwdpConfig,
    GmsConfig,
    KvCacheCompressionConfig,
    LayerwiseBenchmarksConfig,
    LoadFormat,
    ModelExpressConfig,
    MoeConfig,
    MoeLoadBalancerConfig,
    Nvfp4GemmConfig,
    PrometheusMetricsConfig,
    RayPlacementConfig,
    SamplerType,
    SleepConfig,
    SparseAttentionConfig,
    TelemetryConfig,
)
from tensorrt_llm.llmapi.scheduling_configs import (
    AgentTreeConfig,
    AttentionDpConfig,
    CapacitySchedulerPolicy,
    ContextChunkingPolicy,
    DynamicBatchConfig,
    ReorderRequestPolicyConfig,
    SchedulerConfig,
    WaitingQueuePolicy,
)
from tensorrt_llm.llmapi.strict_model import StrictBaseModel
from tensorrt_llm.llmapi.torch_llm_args import TorchLlmArgs
from tensorrt_llm.lora_helper import LoraConfig

LlmArgs = TorchLlmArgs

__all__ = [
    "AgentTreeConfig",
    "AttentionDpConfig",
    "BaseLlmArgs",
    "CacheTransceiverConfig",
    "CapacitySchedulerPolicy",
    "ContextChunkingPolicy",
    "CpConfig",
    "CudaGraphConfig",
    "DecodeCudaGraphConfig",
    "DecodingBaseConfig",
    "DwdpConfig",
    "DynamicBatchConfig",
    "EncodeCudaGraphConfig",
    "ExecutorMemoryType",
    "GmsConfig",
    "KvCacheCompressionConfig",
    "KvCacheConfig",
    "KvCacheConnectorConfig",
    "LayerwiseBenchmarksConfig",
    "LlmArgs",
    "LoadFormat",
    "LoraConfig",
    "ModelExpressConfig",
    "MoeConfig",
    "MoeLoadBalancerConfig",
    "MultimodalConfig",
    "Nvfp4GemmConfig",
    "PeftCacheConfig",
    "PrometheusMetricsConfig",
    "RayPlacementConfig",
    "ReorderRequestPolicyConfig",
    "SamplerType",
    "SchedulerConfig",
    "SleepConfig",
    "SparseAttentionConfig",
    "StrictBaseModel",
    "TelemetryConfig",
    "TorchCompileConfig",
    "TorchLlmArgs",
    "WaitingQueuePolicy",
    "update_llm_args_with_extra_dict",
    "update_llm_args_with_extra_options",
]
