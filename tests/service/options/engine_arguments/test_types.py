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


_RISING = "a list of numbers, each above the one before it"


@pytest.mark.parametrize(
    ("path", "value", "allowed"),
    [
        ("disable_overlap_scheduler", "never", "true or false"),
        ("disable_overlap_scheduler", 2, "true or false"),
        ("kv_cache_config.enable_block_reuse", "", "true or false"),
        ("lora_config.lora_dir", "/adapters/law", "a list of texts"),
        ("lora_config.lora_dir", 5, "a list of texts"),
        ("lora_config.lora_dir", ["/adapters/law", 5], "a list of texts"),
        ("pipeline_parallel_size", "two", "a whole number from 1 up"),
        ("context_parallel_size", 0, "a whole number from 1 up"),
        ("context_parallel_size", "0", "a whole number from 1 up"),
        ("gpus_per_node", False, "a whole number from 1 up"),
        *(
            (f"prometheus_metrics_config.{name}", bounds, _RISING)
            for name in BUCKETS
            for bounds in ([], [1, 1], [2, 1.5], [0.1, "x"], ["2", "10", "3"], ["nan"], 5, "0.1")
        ),
        ("max_beam_width", 0, "a whole number from 1 up"),
        ("cache_transceiver_config.kv_transfer_timeout_ms", 0.5, "a whole number from 1 up"),
        ("kv_cache_config.event_buffer_max_size", -1, "a whole number from 0 up"),
        ("reasoning_parser", 5, "a text"),
        ("kv_cache_config.free_gpu_memory_fraction", "90%", "a number from 0 to 1"),
        ("kv_cache_config.free_gpu_memory_fraction", 1.5, "a number from 0 to 1"),
        ("kv_cache_config.tokens_per_block", "-1", "a whole number from 1 up"),
        ("max_batch_size", "16k", "a whole number from 1 up"),
        ("max_seq_len", "1.5", "a whole number from 1 up"),
        ("tensor_parallel_size", {"x": 1}, "a whole number from 1 up"),
    ],
)
def test_a_value_of_another_type_is_refused(path: str, value: object, allowed: str) -> None:
    """With its name and what is allowed: the engine would misread it, or break over it."""
    line = refused(*TRTLLM, with_value(path, value))
    assert line.startswith(f"--override-engine-args:{path}: ")
    assert line.endswith(f"allowed: {allowed}")


@pytest.mark.parametrize(
    ("path", "value", "typed"),
    [
        ("max_batch_size", "64", 64),
        ("max_num_tokens", 8192.0, 8192),
        ("max_num_tokens", " 1_024 ", 1024),
        ("max_seq_len", "4096.0", 4096),
        ("tensor_parallel_size", True, 1),
        ("kv_cache_config.free_gpu_memory_fraction", "0.8", 0.8),
        ("kv_cache_config.free_gpu_memory_fraction", "1", 1.0),
        ("kv_cache_config.enable_block_reuse", "false", False),
        ("enable_chunked_prefill", 1, True),
        ("skip_tokenizer_init", "False", False),
        ("trust_remote_code", "yes", True),
        ("prometheus_metrics_config.e2e_request_latency_buckets", ["0.1", 1, "30"], [0.1, 1, 30.0]),
    ],
)
def test_what_tensorrt_would_read_is_read_so_and_handed_on(path: str, value: object, typed: object) -> None:
    """Templates put quotes around everything; the driver gets the type, whatever version is installed."""
    for installed in (with_tensorrt(), with_tensorrt("1.4.0")):
        settings = load(*TRTLLM, with_value(path, value), installed=installed)
        assert settings.engine_arguments is not None
        found = settings.engine_arguments.value(path)
        assert (found, type(found)) == (typed, type(typed))
        assert settings.warnings == ()


def test_the_worker_counts_with_what_it_read(tmp_path: Path) -> None:
    """In quotes or not: its own limits, and a flag beside an equal value of the file loses nothing."""
    path = tmp_path / "engine.yaml"
    path.write_text('max_batch_size: "64"\nmax_num_tokens: "512"\nenable_chunked_prefill: "true"\n')
    settings = load(*TRTLLM, "--extra-engine-args", str(path), "--max-batch-size", "64")
    arguments = settings.engine_arguments
    assert arguments is not None
    assert (arguments.max_batch_size, arguments.max_num_tokens) == (64, 512)
    assert arguments.has_chunked_prefill
    assert settings.warnings == ()


def test_reuse_that_is_off_in_quotes_is_off() -> None:
    """A text is true to Python: routers would wait for events that never come."""
    words = with_value("kv_cache_config.enable_block_reuse", "false")
    (warning,) = load(*TRTLLM, "--publish-kv-events", words).warnings
    assert "false leaves no KV events to publish" in warning


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


@pytest.mark.parametrize("value", [3, 0.5, True, None, ["a"], {"A": "b"}, {}])
def test_a_variable_that_is_no_text_becomes_the_text_of_it(value: object) -> None:
    """As TensorRT-LLM makes one, in every version."""
    for installed in (with_tensorrt(), with_tensorrt("1.4.0")):
        arguments = load(*TRTLLM, with_value("env_overrides.X", value), installed=installed).engine_arguments
        assert arguments is not None
        assert arguments.value("env_overrides") == {"X": str(value)}
        assert "********" in arguments.shown()


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


def test_names_of_variables_become_texts_too(tmp_path: Path) -> None:
    """In YAML a number without quotes is none; who gave it is not lost."""
    path = tmp_path / "engine.yaml"
    path.write_text("env_overrides: {1: a, TRTLLM_ENABLE_PDL: 1, LAZY: true}", encoding="utf-8")
    arguments = load(*TRTLLM, "--extra-engine-args", str(path)).engine_arguments
    assert arguments is not None
    assert arguments.value("env_overrides") == {"1": "a", "TRTLLM_ENABLE_PDL": "1", "LAZY": "True"}
    assert arguments.place("env_overrides.LAZY") == f"{path}:env_overrides.LAZY"
