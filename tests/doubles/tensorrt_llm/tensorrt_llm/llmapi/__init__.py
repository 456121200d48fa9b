"""The public names of the LLM API."""

from tensorrt_llm.bindings.executor import KvCacheRetentionConfig
from tensorrt_llm.conversation_params import ConversationParams
from tensorrt_llm.disaggregated_params import DisaggregatedParams, DisaggScheduleStyle
from tensorrt_llm.executor.request import LoRARequest
from tensorrt_llm.executor.result import CompletionOutput, Logprob
from tensorrt_llm.executor.utils import EngineDeadError, RequestError
from tensorrt_llm.llmapi.llm import LLM, RequestOutput
from tensorrt_llm.llmapi.llm_args import (
    AttentionDpConfig,
    CacheTransceiverConfig,
    CapacitySchedulerPolicy,
    ContextChunkingPolicy,
    CudaGraphConfig,
    DynamicBatchConfig,
    KvCacheConfig,
    KvCacheConnectorConfig,
    LlmArgs,
    LoraConfig,
    MoeConfig,
    PeftCacheConfig,
    SchedulerConfig,
    SleepConfig,
    TorchCompileConfig,
    TorchLlmArgs,
    WaitingQueuePolicy,
)
from tensorrt_llm.llmapi.thinking_budget import add_thinking_budget_logits_processor
from tensorrt_llm.sampling_params import (
    BatchedLogitsProcessor,
    GuidedDecodingParams,
    LogitsProcessor,
    LogprobMode,
    SamplingParams,
)
from tensorrt_llm.scheduling_params import SchedulingParams

__all__ = [
    "LLM",
    "AttentionDpConfig",
    "BatchedLogitsProcessor",
    "CacheTransceiverConfig",
    "CapacitySchedulerPolicy",
    "CompletionOutput",
    "ContextChunkingPolicy",
    "ConversationParams",
    "CudaGraphConfig",
    "DisaggScheduleStyle",
    "DisaggregatedParams",
    "DynamicBatchConfig",
    "EngineDeadError",
    "GuidedDecodingParams",
    "KvCacheConfig",
    "KvCacheConnectorConfig",
    "KvCacheRetentionConfig",
    "LlmArgs",
    "LoRARequest",
    "LogitsProcessor",
    "Logprob",
    "LogprobMode",
    "LoraConfig",
    "MoeConfig",
    "PeftCacheConfig",
    "RequestError",
    "RequestOutput",
    "SamplingParams",
    "SchedulerConfig",
    "SchedulingParams",
    "SleepConfig",
    "TorchCompileConfig",
    "TorchLlmArgs",
    "WaitingQueuePolicy",
    "add_thinking_budget_logits_processor",
]
