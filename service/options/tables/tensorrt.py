"""Options that only TensorRT-LLM understands. The other engines refuse them; a few are refused by all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.options.json_kind import JsonObject
from service.options.kinds import Boolean, Choice, Integer, Kind, Number, Text, Words
from service.options.option import Group, Option, Refusal, flag_of

if TYPE_CHECKING:
    from service.options.values import Value


def _option(name: str, kind: Kind, default: Value, text: str, refusal: Refusal, env: str = "") -> Option:
    return Option(
        name=name,
        flag=flag_of(name),
        env=env or f"DYN_TRTLLM_{name.upper()}",
        kind=kind,
        default=default,
        group=Group.TENSORRT,
        help=text,
        refusal=refusal,
    )


def _without(instead: str, *values: Value) -> Refusal:
    """What torch and synthetic say. ``values``: those that TensorRT-LLM is driven with, if not any."""
    return Refusal(needs="TensorRT-LLM", instead=instead, engines=("trtllm",), engine_values=values)


_ONE_DEVICE = _without("leave it out: the engines torch and synthetic use one device")
_ONE_RANK = _without("leave it out: there is one rank only")
_MEMORY_SERVICE = Refusal(
    needs="the GPU memory service of the upstream worker", instead="load the weights from the model's folder"
)
LOAD_FORMATS = (
    "allowed: auto or dummy; gms needs the GPU memory service of the upstream worker, and vision_only loads "
    "no language model"
)
_COUNT = Integer(1, 4096)

TENSORRT: tuple[Option, ...] = (
    _option("tensor_parallel_size", _COUNT, 1, "Tensor parallel size.", _ONE_DEVICE),
    _option("pipeline_parallel_size", _COUNT, 1, "Pipeline parallel size.", _ONE_DEVICE),
    _option("expert_parallel_size", _COUNT, None, "Expert parallel size of MoE models.", _ONE_DEVICE),
    _option(
        "enable_attention_dp",
        Boolean(),
        False,
        "Attention data parallelism: routers see every rank of the tensor parallel group.",
        _ONE_DEVICE,
    ),
    _option(
        "conversation_affinity",
        Boolean(),
        False,
        "Let the engine keep a conversation on one attention-DP rank.",
        _ONE_RANK,
        env="DYN_ENGINE_CONV_AFFINITY",
    ),
    _option(
        "conversation_affinity_dp_rank_source",
        Choice(("engine", "dynamo")),
        "engine",
        "Who chooses the rank of a conversation: the engine, or the router wherever it names one.",
        _ONE_RANK,
        env="DYN_ENGINE_CONV_AFFINITY_DP_RANK_SOURCE",
    ),
    _option("gpus_per_node", _COUNT, None, "GPUs of one node; TensorRT-LLM counts them itself.", _ONE_DEVICE),
    _option("max_beam_width", _COUNT, 1, "Beams of beam search.", _without("use n choices instead of beams")),
    _option(
        "free_gpu_memory_fraction",
        Number(0, 1, with_minimum=False),
        0.9,
        "Share of the free GPU memory that becomes KV cache.",
        _without("use --memory-gb"),
    ),
    _option(
        "extra_engine_args",
        Text("a YAML file"),
        None,
        "YAML file of TensorRT-LLM arguments; the worker's own flags win over it.",
        _without("use this worker's own options (--config FILE)"),
    ),
    _option(
        "override_engine_args",
        JsonObject(masks=("env_overrides",)),
        None,
        "JSON object of TensorRT-LLM arguments that win over everything else.",
        _without("use this worker's own options"),
    ),
    _option(
        "load_format",
        Text("a load format", is_caseless=True),
        "auto",
        "How weights are loaded: `auto`, or `dummy` for none.",
        Refusal(
            needs="TensorRT-LLM, for gms also the GPU memory service of the upstream worker",
            instead="leave it out",
            engines=("trtllm",),
            engine_values=("dummy",),
            engine_reason=LOAD_FORMATS,
        ),
    ),
    _option(
        "model_loader_extra_config",
        JsonObject(),
        None,
        "Arguments of the loader of the GPU memory service.",
        _MEMORY_SERVICE,
    ),
    _option(
        "fpm_trace",
        Boolean(),
        False,
        "Write trace files of forward-pass metrics.",
        Refusal(needs="the upstream worker's trace writer", instead="the worker's own metrics are always on"),
        env="DYN_FPM_TRACE",
    ),
    _option(
        "publish_metrics",
        Boolean(),
        False,
        "Show TensorRT-LLM's own metrics of iterations and requests.",
        _without("the worker's own metrics are always on"),
    ),
    _option(
        "connector",
        Words(may_be_empty=True),
        (),
        "KV cache connector: `none` or `kvbm`, at most one.",
        _without("give none, or leave it out", ("kvbm",)),
        env="DYN_CONNECTOR",
    ),
)
