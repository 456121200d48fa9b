"""From the arguments of an LLM to what its engine's process is told."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, cast

from tensorrt_llm._double.script import read_script
from tensorrt_llm._double.wire import Settings

if TYPE_CHECKING:
    from tensorrt_llm.llmapi.llm_args import TorchLlmArgs
    from tensorrt_llm.sampling_params import BatchedLogitsProcessor

# The GPUs that the machine seems to have.
GPUS = "DOUBLE_GPUS"
# Milliseconds from one step to the next.
STEP_MS = "DOUBLE_STEP_MS"
# The folder in which prefills leave what decodes fetch.
TRANSFERS = "DOUBLE_TRANSFERS"

_TRANSFER_BACKENDS = ("UCX", "NIXL", "MPI", "MOONCAKE")


def check_machine(args: TorchLlmArgs) -> None:
    """Raises RuntimeError for a machine, or a model folder, that cannot do it."""
    world = world_size_of(args)
    gpus = int(os.environ.get(GPUS) or 1)
    if world > gpus and "RAY_LOCAL_WORLD_SIZE" not in os.environ:
        raise RuntimeError(f"requested {world} GPUs per node, but only {gpus} are visible")
    if not (Path(args.model) / "config.json").is_file():
        raise RuntimeError(f"the model folder {Path(args.model).name} has no config.json")


def world_size_of(args: TorchLlmArgs) -> int:
    """Processes of the engine."""
    return args.tensor_parallel_size * args.pipeline_parallel_size * args.context_parallel_size


def settings_of(args: TorchLlmArgs) -> Settings:
    """The environment is read here, too, so a double that runs keeps what it was built with."""
    cache = args.kv_cache_config
    has_events = cache.enable_block_reuse and cache.event_buffer_max_size > 0
    affinity = args.attention_dp_config
    sleep = args.sleep_config
    return Settings(
        model=str(args.model),
        script=read_script(),
        step_ms=float(os.environ.get(STEP_MS) or 5),
        transfers=os.environ.get(TRANSFERS, ""),
        ranks=args.tensor_parallel_size if args.enable_attention_dp else 1,
        world_size=world_size_of(args),
        is_attention_dp=args.enable_attention_dp,
        has_affinity=affinity is not None and bool(affinity.kv_cache_routing_conversation_affinity),
        max_batch_size=args.max_batch_size or 2048,
        max_num_tokens=args.max_num_tokens or 8192,
        max_beam_width=args.max_beam_width or 1,
        max_seq_len=args.max_seq_len,
        stream_interval=args.stream_interval,
        has_priority=_word(args.scheduler_config.waiting_queue_policy) == "priority",
        is_overlapped=not args.disable_overlap_scheduler,
        block_tokens=cache.tokens_per_block,
        kv_tokens=cache.max_tokens,
        has_block_reuse=cache.enable_block_reuse,
        event_buffer=cache.event_buffer_max_size if has_events else 0,
        guided_backend=args.guided_decoding_backend,
        has_stats=args.enable_iter_perf_stats,
        has_request_stats=args.enable_iter_perf_stats and args.enable_iter_req_stats,
        stats_length=args.max_stats_len,
        has_lora=args.lora_config is not None,
        transceiver=_transceiver(args),
        transfer_timeout_s=_transfer_timeout_s(args),
        restore_modes=None
        if sleep is None
        else {tag.value: mode.name for tag, mode in sleep.restore_modes.items()},
        batched_processor=cast("BatchedLogitsProcessor | None", args.batched_logits_processor),
    )


def end_ids_of(model: str) -> int | list[int] | None:
    """``eos_token_id`` of the generation configuration, or of the model's."""
    for name in ("generation_config.json", "config.json"):
        path = Path(model) / name
        ids: int | list[int] | None = (
            json.loads(path.read_text()).get("eos_token_id") if path.is_file() else None
        )
        if ids is not None:
            return ids
    return None


def _transceiver(args: TorchLlmArgs) -> str | None:
    """The backend by its name; DEFAULT is chosen by the legacy variables, and UCX without one."""
    config = args.cache_transceiver_config
    if config is None or config.backend is None:
        return None
    if config.backend != "DEFAULT":
        return str(config.backend)
    chosen = [each for each in _TRANSFER_BACKENDS if os.environ.get(f"TRTLLM_USE_{each}_KVCACHE") == "1"]
    return chosen[0] if chosen else "NIXL"


def _transfer_timeout_s(args: TorchLlmArgs) -> float:
    """How long a prefill holds what nobody fetches."""
    config = args.cache_transceiver_config
    milliseconds = None if config is None else config.kv_transfer_timeout_ms
    return float("inf") if milliseconds is None else milliseconds / 1000


def _word(value: object) -> str:
    """The value of an enum's member, or the word itself."""
    return str(getattr(value, "value", value))
