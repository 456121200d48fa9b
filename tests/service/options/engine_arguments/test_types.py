"""Values of another type than the engine reads: refused by name, before anything loads."""

from __future__ import annotations

import json

import pytest

from actors.engines.trtllm.metrics import BUCKETS
from tests.service.options.world import load, refused

_TRTLLM = ("--engine", "trtllm")


def _with(path: str, value: object) -> str:
    """An override that holds this value there."""
    document = value
    for key in reversed(path.split(".")):
        document = {key: document}
    return f"--override-engine-args={json.dumps(document)}"


@pytest.mark.parametrize(
    ("path", "value", "allowed"),
    [
        ("disable_overlap_scheduler", "false", "true or false"),
        ("disable_overlap_scheduler", 0, "true or false"),
        ("kv_cache_config.enable_block_reuse", "no", "true or false"),
        ("lora_config.lora_dir", "/adapters/law", "a list of texts"),
        ("lora_config.lora_dir", 5, "a list of texts"),
        ("lora_config.lora_dir", ["/adapters/law", 5], "a list of texts"),
        ("pipeline_parallel_size", "2", "a whole number from 1 up"),
        ("context_parallel_size", 0, "a whole number from 1 up"),
        ("gpus_per_node", 0, "a whole number from 1 up"),
        *(
            (f"prometheus_metrics_config.{name}", bounds, "a list of numbers, each above the one before it")
            for name in BUCKETS
            for bounds in ([], [1, 1], [2, 1.5], [0.1, "1"], [False, True], 5, "0.1")
        ),
        ("enable_attention_dp", "yes", "true or false"),
        ("skip_tokenizer_init", 1, "true or false"),
        ("max_beam_width", 0, "a whole number from 1 up"),
        ("cache_transceiver_config.kv_transfer_timeout_ms", 0.5, "a whole number from 1 up"),
        ("kv_cache_config.event_buffer_max_size", -1, "a whole number from 0 up"),
        ("reasoning_parser", 5, "a text"),
        ("kv_cache_config.free_gpu_memory_fraction", "0.9", "a number from 0 to 1"),
    ],
)
def test_a_value_of_another_type_is_refused(path: str, value: object, allowed: str) -> None:
    """With its name and what is allowed: the engine would misread it, or break over it."""
    line = refused(*_TRTLLM, _with(path, value))
    assert line.startswith(f"--override-engine-args:{path}: ")
    assert line.endswith(f"allowed: {allowed}")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("disable_overlap_scheduler", True),
        ("kv_cache_config.enable_block_reuse", False),
        ("prometheus_metrics_config", None),
        ("prometheus_metrics_config.e2e_request_latency_buckets", None),
        ("prometheus_metrics_config.e2e_request_latency_buckets", [0.1, 1, 30.0]),
        ("lora_config.lora_dir", []),
        ("sleep_config.restore_modes", {"kv_cache": "CPU"}),
        ("sleep_config.restore_modes", None),
    ],
)
def test_a_value_of_its_type_is_taken(path: str, value: object) -> None:
    """As it stands."""
    load(*_TRTLLM, _with(path, value))
