"""Values that TensorRT-LLM would refuse when the model loads are refused before."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from service.options.engine_arguments.known_values import FIELDS
from service.options.engine_arguments.value_kinds import Words
from tests.service.options.engine_arguments.words import TRTLLM, with_value
from tests.service.options.world import load, refused, with_tensorrt

if TYPE_CHECKING:
    from pathlib import Path

_WHERE = "--override-engine-args"
_WORDS = {path: field.kind.words for path, field in FIELDS.items() if isinstance(field.kind, Words)}
_NOT_NULL = sorted(path for path, field in FIELDS.items() if not field.may_be_null)
_OR_NULL = sorted(FIELDS.keys() - set(_NOT_NULL))


@pytest.mark.parametrize(
    ("path", "value", "allowed"),
    [
        (
            "scheduler_config.capacity_scheduler_policy",
            "MAX_UTILISATION",
            "one of MAX_UTILIZATION, GUARANTEED_NO_EVICT, STATIC_BATCH; the nearest is MAX_UTILIZATION",
        ),
        (
            "scheduler_config.context_chunking_policy",
            "equal_progress",
            "one of FIRST_COME_FIRST_SERVED, EQUAL_PROGRESS, FORCE_CHUNK; the nearest is EQUAL_PROGRESS",
        ),
        ("kv_cache_config.block_reuse_policy", 3, "one of all_reusable, per_request"),
        ("kv_cache_config.dtype", 8, "a text"),
        ("stream_interval", 0, "a whole number from 1 up"),
        ("stream_interval", 1.5, "a whole number from 1 up"),
        ("max_stats_len", "foo", "a whole number from -1 up"),
        ("max_stats_len", -2, "a whole number from -1 up"),
        ("encoder_max_batch_size", 0, "a whole number from 1 up"),
        ("perf_metrics_max_requests", -1, "a whole number from 0 up"),
        ("batch_wait_timeout_ms", -0.5, "a number from 0 up"),
        ("batch_wait_max_tokens_ratio", "half", "a number from 0 to 1"),
        ("batch_wait_max_tokens_ratio", 1.5, "a number from 0 to 1"),
        ("enable_autotuner", "maybe", "true or false"),
        ("enable_iter_req_stats", 2, "true or false"),
        ("pp_partition", "1,2", "a list of whole numbers"),
        ("kv_cache_config.max_attention_window", [1, "a"], "a list of whole numbers, at least one"),
        ("kv_cache_config.max_attention_window", [], "a list of whole numbers, at least one"),
        ("kv_cache_config.use_kv_cache_manager_v2", "newest", "true, false or auto"),
        ("kv_cache_config.free_gpu_memory_fraction", None, "a number from 0 to 1"),
        ("cuda_graph_config.num_tokens", [0], "a list of whole numbers from 1 up, at least one"),
        ("cache_transceiver_config.kv_cache_bounce_size_mb", -1, "a whole number from 0 up"),
        ("kv_cache_config.pool_ratio", 0.5, "a list of numbers, at least one"),
        ("kv_cache_config.max_gpu_total_bytes", -1, "a whole number from 0 up"),
        ("cuda_graph_config.batch_sizes", 4, "a list of whole numbers"),
        ("cuda_graph_config.max_batch_size", -4, "a whole number from 0 up"),
        ("cache_transceiver_config.kv_transfer_poll_interval_ms", 0, "a whole number from 1 up"),
        ("lora_config.lora_target_modules", "attn_q", "a list of texts"),
        ("lora_config.trtllm_modules_to_hf_modules", {"a": 1}, "an object of names, with a text for each"),
        ("speculative_config", "MTP", "an object of names and values"),
        ("moe_config", None, "an object of names and values"),
    ],
)
def test_a_value_that_would_be_refused_is_refused(path: str, value: object, allowed: str) -> None:
    """With its field, itself and what is allowed there; also where a dotted flag gives it."""
    shown = "null" if value is None else json.dumps(value) if isinstance(value, bool) else repr(value)
    assert refused(*TRTLLM, with_value(path, value)) == f"{_WHERE}:{path}: value {shown}: allowed: {allowed}"
    if isinstance(value, str):
        line = refused(*TRTLLM, f"--trtllm.{path}", value)
        assert line == f"--trtllm.{path}: value {shown}: allowed: {allowed}"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("stream_interval", "20"),
        ("max_stats_len", -1),
        ("max_stats_len", 100.0),
        ("enable_autotuner", "yes"),
        ("enable_autotuner", 0),
        ("batch_wait_timeout_ms", "0.5"),
        ("kv_cache_config.cross_kv_cache_fraction", 1),
        ("sampler_type", "TorchSampler"),
        ("kv_cache_config.use_kv_cache_manager_v2", "auto"),
        ("kv_cache_config.use_kv_cache_manager_v2", True),
        ("cache_transceiver_config.transceiver_runtime", "auto"),
        ("disable_mm_encoder", True),
        ("multimodal_config", None),
        ("cuda_graph_config", {"mode": "encode", "num_tokens": [64, 128], "max_seq_len": 128}),
        ("kv_connector_config", {"connector": "lmcache-mp", "server_url": "tcp://cache:5555"}),
        ("tokenizer", "somewhere"),
    ],
)
def test_a_value_that_tensorrt_reads_is_left_as_it_is(path: str, value: object) -> None:
    """Quoted numbers are numbers there."""
    settings = load(*TRTLLM, with_value(path, value))
    assert settings.warnings == ()
    assert settings.engine_arguments is not None
    assert settings.engine_arguments.value(path) == value


@pytest.mark.parametrize("path", sorted(_WORDS))
def test_words_are_compared_as_tensorrt_does(path: str) -> None:
    """Upper and lower case are not the same there."""
    for word in _WORDS[path]:
        load(*TRTLLM, with_value(path, word))
        assert refused(*TRTLLM, with_value(path, word.swapcase())).endswith(f"; the nearest is {word}")
    assert refused(*TRTLLM, with_value(path, "???")).endswith(f"allowed: one of {', '.join(_WORDS[path])}")


@pytest.mark.parametrize("path", _NOT_NULL)
def test_null_is_refused_where_there_is_no_nothing(path: str) -> None:
    """Leaving it out gets the default."""
    line = refused(*TRTLLM, with_value(path, None))
    assert line.startswith(f"{_WHERE}:{path}: value null: allowed: {FIELDS[path].kind.allowed}")


@pytest.mark.parametrize("path", _OR_NULL)
def test_null_is_taken_where_it_means_something(path: str) -> None:
    """For the most part the default."""
    load(*TRTLLM, with_value(path, None))


def test_all_wrong_values_are_told_at_once(tmp_path: Path) -> None:
    """A line each, wherever they stand; of one that loses nothing is said, since nobody gets it."""
    path = tmp_path / "engine.yaml"
    path.write_text(
        "stream_interval: 0\nmax_stats_len: foo\nscheduler_config: {capacity_scheduler_policy: max}",
        encoding="utf-8",
    )
    lines = refused(*TRTLLM, "--extra-engine-args", str(path), "--trtllm.max_stats_len", "many").splitlines()
    policy = FIELDS["scheduler_config.capacity_scheduler_policy"].kind.allowed
    assert lines == [
        "--trtllm.max_stats_len: value 'many': allowed: a whole number from -1 up",
        f"{path}:stream_interval: value 0: allowed: a whole number from 1 up",
        f"{path}:scheduler_config.capacity_scheduler_policy: value 'max': allowed: {policy}; "
        "the nearest is MAX_UTILIZATION",
    ]


def test_another_version_decides_itself() -> None:
    """The table is of one version; with another one installed what is not in it only warns."""
    words = (with_value("scheduler_config.waiting_queue_policy", "fair"), "--max-batch-size=3")
    settings = load(*TRTLLM, *words, installed=with_tensorrt("1.4.0"))
    assert settings.warnings == (
        f"{_WHERE}:scheduler_config.waiting_queue_policy: value 'fair': allowed: one of fcfs, priority "
        "(as of 1.3.0rc22; 1.4.0 is installed and decides)",
    )
    assert settings.engine_arguments is not None
    assert settings.engine_arguments.value("scheduler_config.waiting_queue_policy") == "fair"
    refused(*TRTLLM, *words, installed=with_tensorrt())


@pytest.mark.parametrize(
    ("group", "allowed"),
    [
        ({"batch_sizes": [1, 2, 4], "max_batch_size": 8}, 4),
        ({"batch_sizes": [8, 2], "max_batch_size": 4}, 8),
        ({"batch_sizes": ["16"], "max_batch_size": 4}, 16),
    ],
)
def test_the_largest_graph_is_the_largest_of_its_sizes(group: dict[str, object], allowed: int) -> None:
    """Else TensorRT-LLM refuses both."""
    why = f"allowed beside batch_sizes: {allowed}, the largest of them; leave one of the two out"
    where = f"{_WHERE}:cuda_graph_config.max_batch_size"
    line = f"{where}: value {group['max_batch_size']}: {why}"
    assert refused(*TRTLLM, with_value("cuda_graph_config", group)) == line
    (warning,) = load(
        *TRTLLM, with_value("cuda_graph_config", group), installed=with_tensorrt("1.4.0")
    ).warnings
    assert warning.startswith(line)


@pytest.mark.parametrize(
    "group",
    [
        {"batch_sizes": [1, 2, 4], "max_batch_size": 4},
        {"batch_sizes": [4, 1], "max_batch_size": 0},
        {"batch_sizes": [4, 1]},
        {"batch_sizes": [], "max_batch_size": 4},
        {"batch_sizes": None, "max_batch_size": 4},
        {"max_batch_size": 4},
    ],
)
def test_sizes_that_agree_are_taken(group: dict[str, object]) -> None:
    """And one of the two alone."""
    assert load(*TRTLLM, with_value("cuda_graph_config", group)).warnings == ()


def test_sizes_of_graphs_may_come_from_two_sides(tmp_path: Path) -> None:
    """What TensorRT-LLM gets counts; the larger side of the line is who gave the largest."""
    path = tmp_path / "engine.yaml"
    path.write_text("cuda_graph_config: {max_batch_size: 16}", encoding="utf-8")
    words = ("--extra-engine-args", str(path), "--trtllm.cuda_graph_config.batch_sizes", "[1, 8]")
    line = refused(*TRTLLM, *words)
    assert line.startswith(
        f"{path}:cuda_graph_config.max_batch_size: value 16: allowed beside batch_sizes: 8,"
    )
