"""Promises of the double's arguments: which names and values an LLM refuses, what becomes of the others."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pydantic import ValidationError

from tests.doubles.trtllm_facts import found_at
from tests.doubles.trtllm_site import double_on_path


@pytest.fixture(scope="module")
def api() -> Iterator[ModuleType]:
    """The module of the arguments."""
    with double_on_path():
        yield importlib.import_module("tensorrt_llm.llmapi.llm_args")


@pytest.fixture(autouse=True)
def _four_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOUBLE_GPUS", "4")


def resolved(**arguments: object) -> Any:
    """Check as the constructor of an LLM does."""
    return found_at("tensorrt_llm.llmapi.torch_llm_args.resolve_llm_args")(model="model", **arguments)


def test_an_unknown_name_is_refused_before_any_value(api: ModuleType) -> None:
    """The error names the argument, and is none of the validation's, although a value is wrong as well."""
    with pytest.raises(ValueError, match="max_batch") as refused:
        resolved(max_batch=3, kv_cache_config="wrong")
    assert not isinstance(refused.value, ValidationError)


def test_names_beside_the_fields_are_taken(api: ModuleType) -> None:
    """The session by its private name, the back-end, and the executor's class, which is taken away first."""
    args = resolved(_mpi_session="session", backend="pytorch", executor_cls=object)
    assert args.mpi_session == "session"


@pytest.mark.parametrize(
    "arguments",
    [
        {"kv_cache_config": {"max_token": 1}},
        {"kv_cache_config": {"free_gpu_memory_fraction": 1.5}},
        {"kv_cache_config": {"dtype": "fp3"}},
        {"kv_cache_config": {"max_attention_window": [0]}},
        {"kv_cache_config": {"pool_ratio": [0.5, 0.4]}},
        {"kv_cache_config": {"disk_cache_size": 1}},
        {"kv_cache_config": {"kv_cache_event_hash_algo": "sha1"}},
        {"scheduler_config": {"waiting_queue_policy": "random"}},
        {"scheduler_config": {"dynamic_batch_config": {"window": 1}}},
        {"cache_transceiver_config": {"backend": "ucx"}},
        {"cache_transceiver_config": {"kv_transfer_timeout_ms": 0}},
        {"cuda_graph_config": {"batch_sizes": [1, 2], "max_batch_size": 4}},
        {"cuda_graph_config": {"sizes": [1]}},
        {"attention_dp_config": {"enable_balance": True, "timeout_iters": -1}},
        {"kv_connector_config": {}},
        {"kv_connector_config": {"connector": "unheard of"}},
        {"lora_config": {"lora_ckpt_source": "gguf"}},
        {"peft_cache_config": {"lora_prefetch_dir": "x"}},
        {"moe_config": {"backend": "FAST"}},
        {"sleep_config": {"restore_modes": {"no_tag": "CPU"}}},
        {"sleep_config": {"restore_modes": {"kv_cache": "DISK"}}},
        {"guided_decoding_backend": "outlines"},
        {"backend": "tensorrt"},
        {"load_format": True},
        {"load_format": "nothing"},
        {"load_format": "gms", "moe_config": {"load_balancer": {"num_slots": 4}}},
        {"stream_interval": 0},
        {"max_stats_len": -2},
        {"skip_tokenizer_init": True, "post_processor_hook": "a.B"},
        {"encode_only": True, "mm_encoder_only": True},
        {"disable_mm_encoder": True, "mm_encoder_only": True},
        {"kv_cache_config": {"use_kv_cache_manager_v2": "newest"}},
        {"encode_only": True, "torch_compile_config": {"enable_piecewise_cuda_graph": True}},
        {"ray_worker_extension_cls": "a.B"},
        {"sampler_force_async_worker": True, "enable_speculative_beam_history_d2h": True},
    ],
)
def test_a_wrong_value_is_refused_at_any_depth(api: ModuleType, arguments: dict) -> None:
    """Nested keys, values out of range and combinations are errors of the validation."""
    with pytest.raises(ValidationError):
        resolved(**arguments)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("KvCacheConfig", {"max_tokens": 64}),
        ("SchedulerConfig", {"waiting_queue_policy": "priority"}),
        ("CacheTransceiverConfig", {"backend": "UCX"}),
        ("CudaGraphConfig", {"batch_sizes": [4, 1]}),
        ("AttentionDpConfig", {"enable_balance": True}),
        ("LoraConfig", {"max_lora_rank": 8}),
        ("SleepConfig", {"restore_modes": {"model": "CPU"}}),
    ],
)
def test_a_dictionary_is_as_good_as_an_object(api: ModuleType, name: str, given: dict) -> None:
    """Both forms of a nested part come to the same."""
    key = "".join(f"_{each.lower()}" if each.isupper() else each for each in name).lstrip("_")
    made = getattr(api, name)(**given)
    assert getattr(resolved(**{key: made}), key) == getattr(resolved(**{key: given}), key) == made


def test_none_returns_to_the_default_where_a_number_is_needed(api: ModuleType) -> None:
    """An explicit None is accepted for four limits, and is not what the engine sees."""
    limits = ("max_batch_size", "max_num_tokens", "max_beam_width", "max_input_len")
    args = resolved(**dict.fromkeys(limits))
    assert [getattr(args, name) for name in limits] == [2048, 8192, 1, 1024]


def test_a_model_may_choose_its_cache_and_its_transfers(api: ModuleType) -> None:
    """Unless somebody else does."""
    args = resolved(cache_transceiver_config={"backend": "UCX"}, multimodal_config=None)
    assert args.kv_cache_config.use_kv_cache_manager_v2 == "auto"
    assert args.cache_transceiver_config.transceiver_runtime == "auto"
    assert args.multimodal_config.encoder_side_stream_max_ahead == 0
    assert resolved(
        kv_cache_config={"use_kv_cache_manager_v2": "true"}
    ).kv_cache_config.use_kv_cache_manager_v2


def test_a_share_that_is_none_breaks_the_check(api: ModuleType) -> None:
    """It is in the type, and compared all the same."""
    with pytest.raises(TypeError):
        resolved(kv_cache_config={"free_gpu_memory_fraction": None})


def test_a_file_may_call_the_revision_otherwise(api: ModuleType) -> None:
    """The right name wins over the other one, and over what is there."""
    merge = api.update_llm_args_with_extra_dict
    assert merge({}, {"hf_revision": "v1"}) == {"revision": "v1"}
    assert merge({"revision": "v0"}, {"hf_revision": "v1", "revision": "v2"}) == {"revision": "v2"}


def test_sizes_of_experts_become_minus_one(api: ModuleType) -> None:
    """Nobody said how experts are spread, so the library decides."""
    args = resolved()
    assert (args.moe_expert_parallel_size, args.moe_tensor_parallel_size) == (-1, -1)


def test_graphs_have_their_sizes(api: ModuleType) -> None:
    """The largest follows from the list and the list from the largest; encoders have keys of their own."""
    assert resolved(cuda_graph_config={"batch_sizes": [4, 1]}).cuda_graph_config.max_batch_size == 4
    assert resolved(cuda_graph_config={"max_batch_size": 6}).cuda_graph_config.batch_sizes[-1] == 6
    assert resolved().cuda_graph_config.max_batch_size == 128
    assert resolved(cuda_graph_config={"max_seq_len": 8}).cuda_graph_config.mode == "encode"
    assert resolved(cuda_graph_config=None).cuda_graph_config is None


@pytest.mark.parametrize("given", ["gms", "GMS", 3])
def test_a_load_format_goes_by_name_or_number(api: ModuleType, given: object) -> None:
    """In any case."""
    assert resolved(load_format=given).load_format is api.LoadFormat.GMS


def test_a_named_connector_needs_no_classes(api: ModuleType) -> None:
    """A preset stands for them; without one all three are needed."""
    assert resolved(kv_connector_config={"connector": "kvbm"}).kv_connector_config.connector == "kvbm"
    parts = {f"connector_{part}": "x" for part in ("module", "scheduler_class", "worker_class")}
    resolved(kv_connector_config=parts)


def test_an_early_first_response_is_for_aggregated_engines(api: ModuleType) -> None:
    """It is switched off, without an error, where a cache is handed over or steps do not overlap."""
    assert resolved(enable_early_first_token_response=True).enable_early_first_token_response
    for other in ({"cache_transceiver_config": {"backend": "NIXL"}}, {"disable_overlap_scheduler": True}):
        assert not resolved(enable_early_first_token_response=True, **other).enable_early_first_token_response


@pytest.mark.parametrize(("given", "kept"), [(0, 1), (-1, -1), (5, 5)])
def test_statistics_keep_at_least_one_row(api: ModuleType, given: int, kept: int) -> None:
    """Minus one keeps all."""
    assert resolved(max_stats_len=given).max_stats_len == kept


def test_what_sleeps_is_lost_or_kept_by_its_tag(api: ModuleType) -> None:
    """The cache is lost unless somebody says otherwise; all other memory is kept."""
    modes = resolved(sleep_config={"restore_modes": {"model_weights": "CPU"}}).sleep_config.restore_modes
    assert {tag.value: mode.name for tag, mode in modes.items()} == {
        "kv_cache": "NONE",
        "model_weights": "CPU",
    }
    assert api.SleepConfig().restore_modes[api.ExecutorMemoryType.MODEL_EXTRA].name == "PINNED"


def test_overrides_of_the_environment_become_texts(api: ModuleType) -> None:
    """Numbers of a YAML file are texts in an environment."""
    assert resolved(env_overrides={"A": 1}).env_overrides == {"A": "1"}


def test_a_load_balancer_comes_from_a_file(api: ModuleType, tmp_path: Path) -> None:
    """A path is read; a path that leads nowhere is an error of its own."""
    file = tmp_path / "balancer.yaml"
    file.write_text("num_slots: 4\n")
    assert resolved(moe_config={"load_balancer": str(file)}).moe_config.load_balancer.num_slots == 4
    with pytest.raises(FileNotFoundError):
        resolved(moe_config={"load_balancer": str(tmp_path / "none.yaml")})


def test_the_ranks_are_the_product_of_the_sizes(api: ModuleType) -> None:
    """Tensor, pipeline and context parallelism, on devices that are counted."""
    args = resolved(tensor_parallel_size=2, pipeline_parallel_size=4)
    assert (args.parallel_config.world_size, args.gpus_per_node) == (8, 4)
    assert args.parallel_config.world_size_per_node == 4


def test_arguments_cannot_be_made_without_a_device(api: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check itself looks at the devices, so a machine without any refuses every argument."""
    monkeypatch.setenv("DOUBLE_GPUS", "0")
    with pytest.raises(RuntimeError, match="No CUDA GPUs"):
        resolved()


def test_options_go_before_a_file_only_when_they_are_named(api: ModuleType, tmp_path: Path) -> None:
    """The library's own merge: the file wins, whole keys at a time, but for what was given as a flag."""
    file = tmp_path / "extra.yaml"
    file.write_text("max_batch_size: 8\nmax_num_tokens: 64\nscheduler_config: {use_python_scheduler: true}\n")
    base = {
        "max_batch_size": 4,
        "max_num_tokens": 32,
        "scheduler_config": {"waiting_queue_policy": "priority"},
    }
    update = found_at("tensorrt_llm.llmapi.llm_utils.update_llm_args_with_extra_options")
    assert update(base, None) == base
    assert update(base, str(file), {"max_batch_size"}) == {
        "max_batch_size": 4,
        "max_num_tokens": 64,
        "scheduler_config": {"use_python_scheduler": True},
    }


def test_the_cache_of_a_file_is_merged_and_becomes_an_object(api: ModuleType) -> None:
    """Keys that the file does not have stay, and a flag keeps the one field that it stands for."""
    base = {"kv_cache_config": api.KvCacheConfig(free_gpu_memory_fraction=0.5, max_tokens=64)}
    extra = {"kv_cache_config": {"free_gpu_memory_fraction": 0.7, "enable_block_reuse": False}}
    merge = api.update_llm_args_with_extra_dict
    cache = merge(base, extra)["kv_cache_config"]
    assert (cache.free_gpu_memory_fraction, cache.max_tokens, cache.enable_block_reuse) == (0.7, 64, False)
    kept = merge(base, extra, explicit_cli_keys={"free_gpu_memory_fraction"})["kv_cache_config"]
    assert kept.free_gpu_memory_fraction == 0.5


def test_a_wrong_key_in_a_merged_part_is_refused(api: ModuleType) -> None:
    """The merge makes objects of some parts, and those know their keys."""
    with pytest.raises(ValidationError):
        api.update_llm_args_with_extra_dict({}, {"moe_config": {"back_end": "AUTO"}})
