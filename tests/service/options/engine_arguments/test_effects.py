"""Arguments that do nothing are named and the worker starts; those it cannot honour stop it."""

from __future__ import annotations

import pytest

from tests.service.options.engine_arguments.words import TRTLLM, override
from tests.service.options.world import load, refused


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (
            [override(kv_cache_config={"event_buffer_max_size": 7})],
            "has no effect: it takes --publish-kv-events",
        ),
        (
            ["--publish-kv-events", override(kv_cache_config={"enable_block_reuse": False})],
            "false leaves no KV events to publish",
        ),
        (
            ["--publish-metrics", override(enable_iter_perf_stats=False)],
            "enable_iter_perf_stats: false leaves the figures of TensorRT-LLM's iterations empty",
        ),
        (
            ["--publish-metrics", override(return_perf_metrics=False)],
            "return_perf_metrics: false leaves TensorRT-LLM's own metrics of requests empty",
        ),
        (
            [override(enable_iter_req_stats=True)],
            "enable_iter_req_stats has no effect without enable_iter_perf_stats",
        ),
        (
            [override(kv_cache_config={"sink_token_length": 4})],
            "kv_cache_config.sink_token_length has no effect: TensorRT-LLM ignores it",
        ),
        (["--conversation-affinity"], "has no effect: without --enable-attention-dp"),
        (["--conversation-affinity-dp-rank-source=dynamo"], "has no effect without --conversation-affinity"),
        ([override(enable_lora=True, lora_config={})], "has no effect: lora_config decides"),
        (
            [override(enable_lora="true")],
            "has no effect: lora_config decides, and is not given; requests for an adapter get 400",
        ),
        (
            ["--publish-kv-events", override(kv_cache_config={"kv_cache_event_hash_algo": "v2_sha256"})],
            "with KV cache manager V2, which a model may choose, it leaves no KV events to publish",
        ),
        (["--no-publish-kv-events", "--connector", "lmcache"], "is no connector of this worker"),
    ],
)
def test_what_comes_to_nothing_is_said(words: list[str], part: str) -> None:
    """One warning, and the worker starts."""
    (warning,) = load(*TRTLLM, *words).warnings
    assert part in warning


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (
            [
                "--publish-kv-events",
                override(
                    kv_cache_config={
                        "kv_cache_event_hash_algo": "v2_sha256",
                        "use_kv_cache_manager_v2": True,
                    }
                ),
            ],
            "v2_sha256_64 has them",
        ),
        (
            ["--load-format", "gms"],
            "--load-format: value 'gms': allowed: auto or dummy; gms needs the GPU memory",
        ),
        (["--model-loader-extra-config", '{"gms_read_only": true}'], "GPU memory service"),
        (["--fpm-trace"], "trace writer"),
        (["--modality", "multimodal"], "multimodal engine"),
    ],
)
def test_what_cannot_be_honoured_is_refused(words: list[str], part: str) -> None:
    """With the reason, although the engine is the right one."""
    assert part in refused(*TRTLLM, *words)


@pytest.mark.parametrize(
    "words",
    [
        [override(return_perf_metrics=False)],
        ["--publish-kv-events", "--no-publish-metrics", override(return_perf_metrics=False)],
        ["--publish-metrics", override(return_perf_metrics=True)],
        ["--publish-metrics", override(enable_iter_req_stats=True)],
        [override(enable_iter_req_stats=True, enable_iter_perf_stats=True)],
        [override(enable_iter_req_stats=False)],
        [override(kv_cache_config={"sink_token_length": None})],
        [override(gather_generation_logits="false")],
        [
            "--publish-kv-events",
            override(
                kv_cache_config={"kv_cache_event_hash_algo": "v2_sha256", "use_kv_cache_manager_v2": False}
            ),
        ],
    ],
)
def test_what_does_something_is_no_matter_for_a_warning(words: list[str]) -> None:
    """Nor what was not asked for."""
    assert load(*TRTLLM, *words).warnings == ()


def test_what_is_ignored_is_left_out_of_its_group() -> None:
    """What stands beside it is handed over."""
    words = override(kv_cache_config={"sink_token_length": 4, "max_tokens": 100})
    arguments = load(*TRTLLM, words).engine_arguments
    assert arguments is not None
    group = arguments.value("kv_cache_config")
    assert group == {"free_gpu_memory_fraction": 0.9, "tokens_per_block": 32, "max_tokens": 100}
