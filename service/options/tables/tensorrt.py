"""Options that only TensorRT-LLM understands. Known by name; refused until this worker drives it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.options.json_kind import JsonObject
from service.options.kinds import Boolean, Choice, Integer, Kind, Number, Text, Words
from service.options.option import Group, Option, Refusal, flag_of

if TYPE_CHECKING:
    from service.options.values import Value


def _tensorrt(name: str, kind: Kind, default: Value, instead: str, text: str, env: str = "") -> Option:
    return Option(
        name=name,
        flag=flag_of(name),
        env=env or f"DYN_TRTLLM_{name.upper()}",
        kind=kind,
        default=default,
        group=Group.TENSORRT,
        help=text,
        refusal=Refusal(needs="TensorRT-LLM", instead=instead),
    )


_ONE_DEVICE = "leave it out: the engines torch and synthetic use one device"
_LEAVE_OUT = "leave it out"
_COUNT = Integer(1, 4096)
_LEGACY_METRICS = "the worker's own metrics are always on"

TENSORRT: tuple[Option, ...] = (
    _tensorrt("tensor_parallel_size", _COUNT, 1, _ONE_DEVICE, "Tensor parallel size."),
    _tensorrt("pipeline_parallel_size", _COUNT, 1, _ONE_DEVICE, "Pipeline parallel size."),
    _tensorrt("expert_parallel_size", _COUNT, None, _ONE_DEVICE, "Expert parallel size of MoE models."),
    _tensorrt("enable_attention_dp", Boolean(), False, _ONE_DEVICE, "Attention data parallelism."),
    _tensorrt(
        "conversation_affinity",
        Boolean(),
        False,
        "leave it out: there is one rank only",
        "Let the engine keep a conversation on one attention-DP rank.",
        env="DYN_ENGINE_CONV_AFFINITY",
    ),
    _tensorrt(
        "conversation_affinity_dp_rank_source",
        Choice(("engine", "dynamo")),
        "engine",
        "leave it out: there is one rank only",
        "Who places the first turn of a conversation (framework 1.6).",
        env="DYN_ENGINE_CONV_AFFINITY_DP_RANK_SOURCE",
    ),
    _tensorrt("gpus_per_node", _COUNT, None, _ONE_DEVICE, "GPUs of one node."),
    _tensorrt("max_beam_width", _COUNT, 1, "use n choices instead of beams", "Beams of beam search."),
    _tensorrt(
        "free_gpu_memory_fraction",
        Number(0, 1, with_minimum=False),
        0.9,
        "use --memory-gb",
        "Share of the free GPU memory that becomes KV cache.",
    ),
    _tensorrt(
        "extra_engine_args",
        Text("a YAML file"),
        None,
        "use this worker's own options (--config FILE)",
        "YAML file of engine arguments.",
    ),
    _tensorrt(
        "override_engine_args",
        JsonObject(),
        None,
        "use this worker's own options",
        "JSON object of engine arguments, merged last.",
    ),
    _tensorrt("load_format", Text("a load format"), "auto", _LEAVE_OUT, "How weights are loaded."),
    _tensorrt("model_loader_extra_config", JsonObject(), None, _LEAVE_OUT, "Arguments of the weight loader."),
    _tensorrt(
        "fpm_trace",
        Boolean(),
        False,
        _LEGACY_METRICS,
        "Write trace files of forward-pass metrics.",
        env="DYN_FPM_TRACE",
    ),
    _tensorrt(
        "publish_metrics",
        Boolean(),
        False,
        _LEGACY_METRICS,
        "Publish iteration, request and forward-pass metrics (framework 1.6).",
    ),
    _tensorrt(
        "connector",
        Words(may_be_empty=True),
        (),
        "give none, or leave it out",
        "KV cache connector: `none` or `kvbm`, at most one.",
        env="DYN_CONNECTOR",
    ),
)
