"""The table of names holds what was read of TensorRT-LLM, neither more nor less."""

from __future__ import annotations

import pytest

from service.options.engine_arguments.known_fields import LLM_FIELDS, SECTIONS, VERSION
from tests.doubles.trtllm_facts import RELEASE, read_facts

_CLASSES = {
    "kv_cache_config": "KvCacheConfig",
    "scheduler_config": "SchedulerConfig",
    "scheduler_config.dynamic_batch_config": "DynamicBatchConfig",
    "cache_transceiver_config": "CacheTransceiverConfig",
    "cuda_graph_config": "CudaGraphConfig",
    "attention_dp_config": "AttentionDpConfig",
    "kv_connector_config": "KvCacheConnectorConfig",
    "lora_config": "LoraConfig",
    "sleep_config": "SleepConfig",
}


def _fields(name: str) -> frozenset[str]:
    return frozenset(field["name"] for field in read_facts()["classes"][name]["fields"])


def test_the_arguments_are_those_of_the_release() -> None:
    """The same that the double of the tests was made for."""
    assert VERSION == RELEASE
    assert _fields("TorchLlmArgs") == LLM_FIELDS


@pytest.mark.parametrize("path", sorted(SECTIONS))
def test_the_objects_in_them_are_those_of_the_release(path: str) -> None:
    """Field by field."""
    assert _fields(_CLASSES[path]) == SECTIONS[path].fields
