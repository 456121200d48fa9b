"""Values of another type than the engine reads: refused by name, before anything loads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from actors.engines.trtllm.figures.metrics import BUCKETS
from service.options.engine_arguments.known_values import READ_HERE
from tests.service.options.engine_arguments.words import TRTLLM, with_value
from tests.service.options.world import load, refused, with_tensorrt

if TYPE_CHECKING:
    from pathlib import Path


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
        ("kv_cache_config.free_gpu_memory_fraction", 1.5, "a number from 0 to 1"),
        ("kv_cache_config.free_gpu_memory_fraction", True, "a number from 0 to 1"),
        ("kv_cache_config.tokens_per_block", -1, "a whole number from 1 up"),
        ("max_batch_size", "16", "a whole number from 1 up"),
        ("max_num_tokens", True, "a whole number from 1 up"),
        ("max_seq_len", 1.5, "a whole number from 1 up"),
        ("tensor_parallel_size", {"x": 1}, "a whole number from 1 up"),
        ("enable_chunked_prefill", 1, "true or false"),
    ],
)
def test_a_value_of_another_type_is_refused(path: str, value: object, allowed: str) -> None:
    """With its name and what is allowed: the engine would misread it, or break over it."""
    line = refused(*TRTLLM, with_value(path, value))
    assert line.startswith(f"--override-engine-args:{path}: ")
    assert line.endswith(f"allowed: {allowed}")


@pytest.mark.parametrize("path", sorted(READ_HERE))
def test_what_the_worker_reads_has_its_type_in_every_version(path: str) -> None:
    """It would count with something else than TensorRT-LLM does."""
    for installed in (with_tensorrt(), with_tensorrt("1.4.0")):
        line = refused(*TRTLLM, with_value(path, 1.5), installed=installed)
        assert line == f"--override-engine-args:{path}: value 1.5: allowed: {READ_HERE[path].allowed}"


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
        ("max_batch_size", None),
        ("gpus_per_node", None),
    ],
)
def test_a_value_of_its_type_is_taken(path: str, value: object) -> None:
    """As it stands."""
    load(*TRTLLM, with_value(path, value))


@pytest.mark.parametrize("value", [3, 0.5, True, None, ["hunter2"], {"A": "hunter2"}, {}])
def test_a_variable_that_is_no_text_is_refused_without_its_value(value: object) -> None:
    """TensorRT-LLM would break over it in the middle of its start, without a name."""
    line = refused(*TRTLLM, with_value("env_overrides.X", value))
    assert (
        line
        == "--override-engine-args:env_overrides.X: value '********': allowed: a text; put it into quotes"
    )


@pytest.mark.parametrize("value", [["X=hunter2"], "X=hunter2", 7, False])
def test_variables_that_are_no_object_are_refused_without_their_values(value: object) -> None:
    """A list is how other tools write them."""
    line = refused(*TRTLLM, with_value("env_overrides", value))
    assert line.startswith(
        "--override-engine-args:env_overrides: value '********': allowed: an object of names"
    )


@pytest.mark.parametrize("value", [None, {}, {"X": "3"}, {"X": ""}])
def test_variables_of_texts_are_taken(value: object) -> None:
    """None at all, too."""
    arguments = load(*TRTLLM, with_value("env_overrides", value)).engine_arguments
    assert arguments is not None
    assert arguments.values["env_overrides"] == value


def test_names_of_variables_are_texts(tmp_path: Path) -> None:
    """In YAML a number without quotes is none."""
    path = tmp_path / "engine.yaml"
    path.write_text("env_overrides: {1: a}", encoding="utf-8")
    line = refused(*TRTLLM, "--extra-engine-args", str(path))
    assert line.startswith(f"{path}:env_overrides: value '********': allowed: an object of names")
