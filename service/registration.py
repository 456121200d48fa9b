"""What the framework publishes about an engine, for routers and frontends."""

from __future__ import annotations

from typing import Any

from dynamo.common.backend import EngineConfig, LlmRegistration

from protocols.engine import EngineInfo
from service.framework import installed_fields
from service.plan import ServingPlan


def engine_config(plan: ServingPlan, info: EngineInfo) -> EngineConfig:
    """As the engine said at its start. Fields that the installed framework does not have are left out."""
    facts: dict[str, Any] = {
        "context_length": info.context_length,
        "kv_cache_block_size": info.block_tokens,
        "total_kv_blocks": info.total_blocks,
        "max_num_seqs": info.max_num_seqs,
        "max_num_batched_tokens": info.max_num_batched_tokens,
        "data_parallel_size": info.data_parallel_size,
    }
    known = installed_fields(LlmRegistration)
    return EngineConfig(
        model=plan.model_path,
        served_model_name=plan.served_model_name,
        llm=LlmRegistration(**{name: value for name, value in facts.items() if name in known}),
    )
