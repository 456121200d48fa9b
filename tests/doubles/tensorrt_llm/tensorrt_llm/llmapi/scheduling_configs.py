"""Which request runs when, and on which rank."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, Self

from pydantic import Field, model_validator

from tensorrt_llm.llmapi.strict_model import StrictBaseModel


class CapacitySchedulerPolicy(StrEnum):
    """How a request comes to its blocks."""

    MAX_UTILIZATION = "MAX_UTILIZATION"
    GUARANTEED_NO_EVICT = "GUARANTEED_NO_EVICT"
    STATIC_BATCH = "STATIC_BATCH"


class ContextChunkingPolicy(StrEnum):
    """Which prompt goes on when several are in pieces."""

    FIRST_COME_FIRST_SERVED = "FIRST_COME_FIRST_SERVED"
    EQUAL_PROGRESS = "EQUAL_PROGRESS"
    FORCE_CHUNK = "FORCE_CHUNK"


class WaitingQueuePolicy(StrEnum):
    """Whether the waiting queue looks at priorities."""

    FCFS = "fcfs"
    PRIORITY = "priority"


class DynamicBatchConfig(StrictBaseModel):
    """Batch limits that follow the load; not for the PyTorch back-end."""

    enable_batch_size_tuning: bool = True
    enable_max_num_tokens_tuning: bool = False
    dynamic_batch_moving_average_window: int = 128


class SchedulerConfig(StrictBaseModel):
    """The scheduler of one engine."""

    capacity_scheduler_policy: CapacitySchedulerPolicy = CapacitySchedulerPolicy.GUARANTEED_NO_EVICT
    context_chunking_policy: ContextChunkingPolicy | None = None
    dynamic_batch_config: DynamicBatchConfig | None = None
    waiting_queue_policy: WaitingQueuePolicy = WaitingQueuePolicy.FCFS
    use_python_scheduler: bool = False
    enable_prefix_aware_scheduling: bool = True


class AttentionDpConfig(StrictBaseModel):
    """How requests are spread over the ranks of attention data parallelism."""

    enable_balance: bool = False
    timeout_iters: int = 50
    batching_wait_iters: int = 10
    enable_kv_cache_aware_routing: bool = False
    kv_cache_routing_load_balance_weight: float = 1.0
    kv_cache_routing_match_rate_threshold: float = 0.1
    kv_cache_routing_fair_share_multiplier: float = 2.0
    kv_cache_routing_cold_start_warmup: bool = False
    kv_cache_routing_account_for_in_transfer: bool = False
    kv_cache_routing_conversation_affinity: bool = False
    kv_cache_routing_max_sessions: int = 65536

    @model_validator(mode="after")
    def _waits_are_not_negative(self) -> Self:
        if self.enable_balance and min(self.batching_wait_iters, self.timeout_iters) < 0:
            raise ValueError(
                "attention_dp_config: batching_wait_iters and timeout_iters must not be negative"
            )
        return self


class AgentTreeConfig(StrictBaseModel):
    """The share of agents' requests."""

    agent_percentage: float = 0.0
    agent_types: list[str] | None = None
    agent_inflight_seq_num: int = 2**31 - 1


class ReorderRequestPolicyConfig(StrictBaseModel):
    """How waiting requests are put into another order."""

    policy_name: Literal["AgentTree"] | None = None
    policy_args: AgentTreeConfig = Field(default_factory=AgentTreeConfig)
