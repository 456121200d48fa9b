"""How upstream's own manifests and launch scripts start its worker: words, file, and what must come out.

From examples/backends/trtllm (deploy, launch, engine_configs) and recipes of ai-dynamo/dynamo.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from protocols.spec import Stage

QWEN = "Qwen/Qwen3-0.6B"
_QWEN_WORDS = ("--model-path", QWEN, "--served-model-name", QWEN, "--extra-engine-args", "ENGINE_FILE")
_PREFILL = ("--disaggregation-mode", "prefill")
_DECODE = ("--disaggregation-mode", "decode")
_TRACES = (
    "--override-engine-args",
    '{"return_perf_metrics": true, "otlp_traces_endpoint": "http://localhost:4317" }',
)
_KV_CAP = ("--override-engine-args", '{"kv_cache_config": {"max_tokens": 25000}}')
_DEFAULT_TRANSCEIVER = {"cache_transceiver_config": {"backend": "DEFAULT"}}
_SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256]

_QWEN_COMMON: dict[str, object] = {
    "tensor_parallel_size": 1,
    "moe_expert_parallel_size": 1,
    "enable_attention_dp": False,
    "max_num_tokens": 8192,
    "trust_remote_code": True,
    "backend": "pytorch",
    "enable_chunked_prefill": True,
    "cuda_graph_config": {"max_batch_size": 16},
    "kv_cache_config": {"free_gpu_memory_fraction": 0.5},
}
QWEN_AGG = {**_QWEN_COMMON, "max_batch_size": 16}
QWEN_PREFILL = {**_QWEN_COMMON, "disable_overlap_scheduler": True, **_DEFAULT_TRANSCEIVER}
QWEN_DECODE = {**_QWEN_COMMON, "disable_overlap_scheduler": False, **_DEFAULT_TRANSCEIVER}

# What a worker hands over that was told nothing but its model.
UNTOLD: dict[str, object] = {
    "skip_tokenizer_init": True,
    "trust_remote_code": False,
    "tensor_parallel_size": 1,
    "pipeline_parallel_size": 1,
    "enable_attention_dp": False,
    "max_batch_size": 2048,
    "max_num_tokens": 8192,
    "max_beam_width": 1,
    "load_format": "auto",
    "kv_cache_config": {"free_gpu_memory_fraction": 0.9, "tokens_per_block": 32},
}
_METRICS = {"enable_iter_perf_stats": True, "return_perf_metrics": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start. ENGINE_FILE among the words stands for the path of a file with ``engine_file``.

    differs: keys in which the result differs from UNTOLD. warnings: their beginnings, in order.
    """

    name: str
    words: tuple[str, ...]
    engine_file: Mapping[str, object] = field(default_factory=dict[str, object])
    role: Stage = Stage.WHOLE
    component: str = "backend"
    model: str = QWEN
    differs: Mapping[str, object]
    warnings: tuple[str, ...] = ()


_OLD_SPELLING = "--publish-events-and-metrics is an old spelling"


def _qwen(fraction: float = 0.5, **more: object) -> dict[str, object]:
    return {"free_gpu_memory_fraction": fraction, "tokens_per_block": 32, **more}


_WITH_EVENTS = {**_METRICS, "kv_cache_config": _qwen(event_buffer_max_size=100_000)}

STARTS: tuple[Start, ...] = (
    Start(
        name="deploy/agg",
        words=_QWEN_WORDS,
        engine_file=QWEN_AGG,
        differs={**QWEN_AGG, "kv_cache_config": _qwen()},
    ),
    Start(
        name="deploy/agg-with-config",
        words=_QWEN_WORDS,
        engine_file={
            **QWEN_AGG,
            "disable_overlap_scheduler": True,
            "kv_cache_config": {"free_gpu_memory_fraction": 0.95},
        },
        differs={**QWEN_AGG, "disable_overlap_scheduler": True, "kv_cache_config": _qwen(0.95)},
    ),
    Start(
        name="deploy/agg_router",
        words=(*_QWEN_WORDS, "--publish-events-and-metrics"),
        engine_file=QWEN_AGG,
        differs={**QWEN_AGG, **_WITH_EVENTS},
        warnings=(_OLD_SPELLING,),
    ),
    Start(
        name="deploy/disagg prefill",
        words=(*_QWEN_WORDS, *_PREFILL),
        engine_file=QWEN_PREFILL,
        role=Stage.PREFILL,
        component="prefill",
        differs={**QWEN_PREFILL, "kv_cache_config": _qwen()},
    ),
    Start(
        name="deploy/disagg decode",
        words=(*_QWEN_WORDS, *_DECODE),
        engine_file=QWEN_DECODE,
        role=Stage.DECODE,
        differs={**QWEN_DECODE, "kv_cache_config": _qwen()},
    ),
    Start(
        name="deploy/disagg_router prefill",
        words=(*_QWEN_WORDS, *_PREFILL, "--publish-events-and-metrics"),
        engine_file=QWEN_PREFILL,
        role=Stage.PREFILL,
        component="prefill",
        differs={**QWEN_PREFILL, **_WITH_EVENTS},
        warnings=(_OLD_SPELLING,),
    ),
    Start(
        name="deploy/disagg-multinode decode",
        words=(*_QWEN_WORDS, *_DECODE),
        engine_file={
            "tensor_parallel_size": 8,
            "moe_expert_parallel_size": 1,
            "enable_attention_dp": False,
            "max_num_tokens": 8192,
            "trust_remote_code": True,
            "backend": "pytorch",
            "enable_chunked_prefill": True,
            "disable_overlap_scheduler": False,
            "kv_cache_config": {"free_gpu_memory_fraction": 0.80},
            **_DEFAULT_TRANSCEIVER,
        },
        role=Stage.DECODE,
        differs={
            "tensor_parallel_size": 8,
            "moe_expert_parallel_size": 1,
            "trust_remote_code": True,
            "backend": "pytorch",
            "enable_chunked_prefill": True,
            "disable_overlap_scheduler": False,
            "kv_cache_config": _qwen(0.8),
            **_DEFAULT_TRANSCEIVER,
        },
    ),
    Start(
        name="launch/agg.sh",
        words=(*_QWEN_WORDS, "--modality", "text"),
        engine_file=QWEN_AGG,
        differs={**QWEN_AGG, "kv_cache_config": _qwen()},
    ),
    Start(
        name="launch/disagg.sh --enable-otel prefill",
        words=(*_QWEN_WORDS, "--modality", "text", *_PREFILL, *_TRACES),
        engine_file=QWEN_PREFILL,
        role=Stage.PREFILL,
        component="prefill",
        differs={
            **QWEN_PREFILL,
            "kv_cache_config": _qwen(),
            "return_perf_metrics": True,
            "otlp_traces_endpoint": "http://localhost:4317",
        },
    ),
    Start(
        name="launch/disagg_same_gpu_decode_kvbm.sh decode",
        words=(
            *(*_QWEN_WORDS, "--modality", "text", "--publish-events-and-metrics"),
            *(*_DECODE, "--connector", "kvbm", *_KV_CAP),
        ),
        engine_file=QWEN_DECODE,
        role=Stage.DECODE,
        differs={
            **QWEN_DECODE,
            **_METRICS,
            "kv_cache_config": _qwen(enable_partial_reuse=False, max_tokens=25000),
            "kv_connector_config": {
                "connector_module": "kvbm.trtllm_integration.connector",
                "connector_scheduler_class": "DynamoKVBMConnectorLeader",
                "connector_worker_class": "DynamoKVBMConnectorWorker",
            },
        },
        warnings=(_OLD_SPELLING, "--publish-events-and-metrics: of a decode worker no KV blocks"),
    ),
    Start(
        name="engine_configs/deepseek-r1/disagg/mtp/mtp_decode",
        words=("--model-path", "nvidia/DeepSeek-R1-FP4", "--extra-engine-args", "ENGINE_FILE", *_DECODE),
        model="nvidia/DeepSeek-R1-FP4",
        engine_file={
            "backend": "pytorch",
            "tensor_parallel_size": 4,
            "moe_expert_parallel_size": 4,
            "enable_attention_dp": False,
            "max_batch_size": 256,
            "max_num_tokens": 512,
            "max_seq_len": 8704,
            "kv_cache_config": {"free_gpu_memory_fraction": 0.85, "dtype": "fp8"},
            "speculative_config": {"decoding_type": "MTP", "num_nextn_predict_layers": 1},
            "cuda_graph_config": {"enable_padding": True, "batch_sizes": _SIZES},
            "print_iter_log": True,
            "cache_transceiver_config": {"backend": "UCX", "max_tokens_in_buffer": 16384},
        },
        role=Stage.DECODE,
        differs={
            "backend": "pytorch",
            "tensor_parallel_size": 4,
            "moe_expert_parallel_size": 4,
            "max_batch_size": 256,
            "max_num_tokens": 512,
            "max_seq_len": 8704,
            "kv_cache_config": _qwen(0.85, dtype="fp8"),
            "speculative_config": {"decoding_type": "MTP", "num_nextn_predict_layers": 1},
            "cuda_graph_config": {"enable_padding": True, "batch_sizes": _SIZES},
            "print_iter_log": True,
            "cache_transceiver_config": {"backend": "UCX", "max_tokens_in_buffer": 16384},
        },
    ),
    Start(
        name="recipes/qwen3-32b-fp8/trtllm/disagg prefill",
        words=(
            *("--model-path", "Qwen/Qwen3-32B-FP8", "--served-model-name", "Qwen/Qwen3-32B-FP8"),
            *("--extra-engine-args", "ENGINE_FILE", "--tensor-parallel-size", "1", "--max-batch-size", "1"),
            *("--free-gpu-memory-fraction", "0.9", *_PREFILL),
        ),
        model="Qwen/Qwen3-32B-FP8",
        engine_file={
            "backend": "pytorch",
            "tensor_parallel_size": 1,
            "pipeline_parallel_size": 1,
            "enable_attention_dp": False,
            "enable_chunked_prefill": False,
            "max_batch_size": 1,
            "max_num_tokens": 7800,
            "max_seq_len": 7800,
            "kv_cache_config": {
                "enable_block_reuse": False,
                "free_gpu_memory_fraction": 0.7,
                "dtype": "fp8",
            },
            **_DEFAULT_TRANSCEIVER,
            "cuda_graph_config": {"enable_padding": True, "batch_sizes": _SIZES},
            "disable_overlap_scheduler": True,
            "print_iter_log": False,
        },
        role=Stage.PREFILL,
        component="prefill",
        differs={
            "backend": "pytorch",
            "enable_chunked_prefill": False,
            "max_batch_size": 1,
            "max_num_tokens": 7800,
            "max_seq_len": 7800,
            "kv_cache_config": _qwen(0.9, enable_block_reuse=False, dtype="fp8"),
            **_DEFAULT_TRANSCEIVER,
            "cuda_graph_config": {"enable_padding": True, "batch_sizes": _SIZES},
            "disable_overlap_scheduler": True,
            "print_iter_log": False,
        },
        warnings=(
            "kv_cache_config.free_gpu_memory_fraction: 0.9 of --free-gpu-memory-fraction wins over 0.7",
        ),
    ),
    Start(
        name="recipes/gpt-oss-120b/trtllm/agg",
        words=(
            *("--model-path", "openai/gpt-oss-120b", "--served-model-name", "openai/gpt-oss-120b"),
            *(
                "--extra-engine-args",
                "ENGINE_FILE",
                "--tensor-parallel-size",
                "4",
                "--expert-parallel-size",
                "4",
            ),
            *("--max-batch-size", "800", "--free-gpu-memory-fraction", "0.9"),
        ),
        model="openai/gpt-oss-120b",
        engine_file={
            "enable_attention_dp": True,
            "cuda_graph_config": {"max_batch_size": 800, "enable_padding": True},
            "kv_cache_config": {"enable_block_reuse": False},
            "stream_interval": 20,
            "moe_config": {"backend": "CUTLASS"},
        },
        differs={
            "enable_attention_dp": True,
            "tensor_parallel_size": 4,
            "moe_expert_parallel_size": 4,
            "max_batch_size": 800,
            "cuda_graph_config": {"max_batch_size": 800, "enable_padding": True},
            "kv_cache_config": _qwen(0.9, enable_block_reuse=False),
            "stream_interval": 20,
            "moe_config": {"backend": "CUTLASS"},
        },
    ),
    Start(
        name="recipes/gpt-oss-120b/trtllm/disagg decode",
        words=(
            *("--model-path", "openai/gpt-oss-120b", "--served-model-name", "openai/gpt-oss-120b"),
            *("--extra-engine-args", "ENGINE_FILE", *_DECODE),
        ),
        model="openai/gpt-oss-120b",
        engine_file={
            "allreduce_strategy": "AUTO",
            "attention_dp_config": {"enable_balance": True},
            "cache_transceiver_config": {"backend": "UCX", "max_tokens_in_buffer": 9216},
            "enable_attention_dp": False,
            "max_batch_size": 1280,
            "num_postprocess_workers": 4,
            "tensor_parallel_size": 4,
            "trust_remote_code": True,
        },
        role=Stage.DECODE,
        differs={
            "allreduce_strategy": "AUTO",
            "attention_dp_config": {"enable_balance": True},
            "cache_transceiver_config": {"backend": "UCX", "max_tokens_in_buffer": 9216},
            "max_batch_size": 1280,
            "tensor_parallel_size": 4,
            "trust_remote_code": True,
        },
        warnings=("ENGINE_FILE:num_postprocess_workers has no effect",),
    ),
    Start(
        name="recipes/deepseek-r1/trtllm/disagg/wide_ep/gb200 prefill",
        words=(
            *(
                "--model-path",
                "/model-cache/deepseek-r1-fp4",
                "--served-model-name",
                "deepseek-ai/DeepSeek-R1",
            ),
            *("--extra-engine-args", "ENGINE_FILE", *_PREFILL),
        ),
        model="/model-cache/deepseek-r1-fp4",
        engine_file={
            "max_batch_size": 4,
            "max_num_tokens": 4608,
            "max_seq_len": 1227,
            "tensor_parallel_size": 4,
            "moe_expert_parallel_size": 4,
            "enable_attention_dp": True,
            "pipeline_parallel_size": 1,
            "cuda_graph_config": None,
            "kv_cache_config": {
                "enable_block_reuse": False,
                "free_gpu_memory_fraction": 0.85,
                "dtype": "fp8",
            },
            "cache_transceiver_config": {"max_tokens_in_buffer": 4608, "backend": "DEFAULT"},
        },
        role=Stage.PREFILL,
        component="prefill",
        differs={
            "max_batch_size": 4,
            "max_num_tokens": 4608,
            "max_seq_len": 1227,
            "tensor_parallel_size": 4,
            "moe_expert_parallel_size": 4,
            "enable_attention_dp": True,
            "cuda_graph_config": None,
            "kv_cache_config": _qwen(0.85, enable_block_reuse=False, dtype="fp8"),
            "cache_transceiver_config": {"max_tokens_in_buffer": 4608, "backend": "DEFAULT"},
        },
    ),
)
