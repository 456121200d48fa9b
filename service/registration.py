"""What the framework publishes about an engine, for routers and frontends."""

from __future__ import annotations

import re
from typing import Any

from dynamo.common.backend import EngineConfig, LlmRegistration

from protocols.engine import EngineInfo
from service.framework import installed_fields
from service.plan import ServingPlan

# The framework's own words, of 1.4.2 and 1.6.1.
_ANOTHER_MODEL = re.compile(
    r"Cannot register model '([^']*)' on endpoint '([^']*)': "
    r"a different model '([^']*)' is already registered"
)


def other_model_there(failure: Exception) -> str | None:
    """What to tell an operator whose endpoint serves another model already; None for any other failure."""
    found = _ANOTHER_MODEL.search(str(failure))
    if found is None:
        return None
    ours, endpoint, theirs = found.groups()
    return (
        f"served-model-name {ours!r}: the endpoint {endpoint} serves {theirs!r} already, and all workers "
        "of an endpoint serve one model; give this one a DYN_NAMESPACE (or an --endpoint) of its own. "
        "A worker that has died is forgotten when its lease has run out (etcd: ETCD_LEASE_TTL, 10 s)"
    )


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
