"""Memory that an engine can give back while it sleeps."""

from __future__ import annotations

from enum import Enum, StrEnum


class ExecutorMemoryType(StrEnum):
    """The tags of memory; only these are known to ``sleep`` and ``wakeup``."""

    SAMPLER = "sampler"
    DRAFTER = "drafter"
    GUIDED_DECODER = "guided_decoder"
    SPEC_RESOURCES = "spec_resource_manager"
    INIT_KV_CACHE = "_no_capture_init_kv_cache"
    INIT_EXTRA_RESOURCES = "_no_capture_init_extra_resources"
    MODEL_EXTRA = "model_extra"
    EXTRA_RESOURCES = "executor_extra"
    KV_CACHE = "kv_cache"
    MODEL_ENGINE_MAIN = "model"
    MODEL_ENGINE_DRAFT = "draft_model"
    MODEL_WEIGHTS_MAIN = "model_weights"
    MODEL_WEIGHTS_DRAFT = "draft_model_weights"


class RestoreMode(Enum):
    """What becomes of the content: lost (NONE, MEMSET), or kept by the host (CPU, PINNED)."""

    NONE = 0
    MEMSET = 1
    CPU = 2
    PINNED = 3
