"""From a model folder to something that can step. Runs in the engine's thread, in stages.

Between stages a stop is noticed. The order saves the operator's time and memory: what can be
refused from files is refused before a weight is read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import transformers

from actors.engines.torch import gate, selftest, sizing
from actors.engines.torch.attention import IMPLEMENTATION, attention_function
from actors.engines.torch.batch import ALONE_TOKENS, BatchBuilder, unit_tokens
from actors.engines.torch.choosing import Chooser
from actors.engines.torch.config import TorchConfig
from actors.engines.torch.kv_cache import KvCache, LayerShape, Scratch
from actors.engines.torch.memory import MemoryPlan, Needs, available_bytes, plan_memory
from actors.engines.torch.repeatable import make_products_repeatable
from actors.engines.torch.runner import ModelRunner
from actors.engines.torch.sampler import Sampler
from actors.engines.torch.scheduler import PIECE_TOKENS
from actors.engines.torch.surgery import operate
from protocols.engine import EngineInfo
from protocols.errors import EngineStartError

Checkpoint = Callable[[str, float], None]
"""Called with the stage and the fraction of the whole start; raises StartStopped to end it."""

# Operators give memory in GB, as cloud machines are sold.
_GB = 10**9
# Gathered K and V of one attention call: large enough to share the call, small enough for the caches.
_GROUP_BYTES = 4 * 2**20

# Their types are only partly known; what is used of them is checked by the self-test at every start.
_AutoConfig: Any = transformers.AutoConfig
_AutoModel: Any = transformers.AutoModelForCausalLM
_AttentionInterface: Any = transformers.AttentionInterface
_logging: Any = transformers.logging


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """What the step loop needs."""

    runner: ModelRunner
    plan: MemoryPlan
    info: EngineInfo
    device: torch.device


@dataclass(frozen=True, slots=True)
class _Setup:
    """What is known before the weights are read. longest: tokens of context the model can have."""

    model_config: Any
    longest: int
    needs: Needs
    device: torch.device
    dtype: torch.dtype
    threads: int


@torch.inference_mode()
def load(config: TorchConfig, checkpoint: Checkpoint) -> LoadedModel:
    """Raises EngineStartError, or what ``checkpoint`` raises."""
    checkpoint("checking", 0.05)
    setup = _set_up(config)
    checkpoint("weights", 0.1)
    model = _load_weights(config, setup)
    checkpoint("reference", 0.5)
    expected = selftest.reference(model, setup.model_config.vocab_size, setup.device)
    _AttentionInterface.register(IMPLEMENTATION, attention_function)
    model.set_attn_implementation(IMPLEMENTATION)
    packed_linears = 0
    if _can_operate(setup.device, setup.dtype):
        packed_linears = operate(model, lambda fraction: checkpoint("packing", 0.55 + 0.25 * fraction))
    checkpoint("self-test", 0.8)
    shapes = selftest.probe_shapes(model, setup.model_config, setup.device)
    selftest.check_ragged(model, setup.model_config, expected, shapes)
    checkpoint("kv cache", 0.9)
    plan = _plan_cache(config, setup, shapes)
    sampler = Sampler(config.max_num_seqs, expected.logits[0].shape[-1], setup.device)
    runner = _runner(model, shapes, plan, sampler, setup)
    checkpoint("ready", 1.0)
    return LoadedModel(runner, plan, _info(config, setup, plan, packed_linears), setup.device)


def _set_up(config: TorchConfig) -> _Setup:
    """Everything that can be found wrong without loading. Sets torch's threads for this thread."""
    config.check()
    gate.check_folder(config.model_path)
    device, dtype = _target(config)
    threads = config.threads or len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    if device.type == "cpu":
        make_products_repeatable()
    model_config = _AutoConfig.from_pretrained(
        config.model_path, trust_remote_code=config.trust_remote_code, local_files_only=True
    )
    gate.check_config(model_config)
    gate.check_class(_AutoModel._model_mapping.get(type(model_config), None), model_config.model_type)
    longest = gate.context_limit(model_config)
    needs = sizing.estimate(config.model_path, model_config, dtype, is_packed=_can_operate(device, dtype))
    plan_memory(config, needs, longest, _usable_bytes(config, device, taken=0))
    return _Setup(model_config, longest, needs, device, dtype, threads)


def _target(config: TorchConfig) -> tuple[torch.device, torch.dtype]:
    has_cuda = torch.cuda.is_available()
    if config.device == "cuda" and not has_cuda:
        raise EngineStartError("device is cuda, but torch sees no CUDA device.", "Use device auto or cpu.")
    kind = config.device if config.device != "auto" else "cuda" if has_cuda else "cpu"
    dtype = config.dtype if config.dtype != "auto" else "float32" if kind == "cpu" else "bfloat16"
    return torch.device(kind), torch.float32 if dtype == "float32" else torch.bfloat16


def _can_operate(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether module surgery applies: its operators were measured for float32 on CPU."""
    return device.type == "cpu" and dtype is torch.float32


def _usable_bytes(config: TorchConfig, device: torch.device, taken: int) -> int:
    """Bytes still to be had; ``taken`` counts against the operator's limit, which makes no memory."""
    free = available_bytes() if device.type == "cpu" else int(torch.cuda.mem_get_info()[0])
    return free if config.memory_gb is None else min(free, int(config.memory_gb * _GB) - taken)


def _load_weights(config: TorchConfig, setup: _Setup) -> Any:
    """The model as transformers has it, with its own eager attention."""
    with _without_progress_bar():
        model = _AutoModel.from_pretrained(
            config.model_path,
            config=setup.model_config,
            dtype=setup.dtype,
            attn_implementation="eager",
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=config.trust_remote_code,
        )
    gate.check_class(type(model), setup.model_config.model_type)
    return model.to(setup.device).eval().requires_grad_(False)


@contextmanager
def _without_progress_bar() -> Generator[None]:
    """The progress of a start is told in one place, and a log is not a terminal."""
    was_shown = _logging.is_progress_bar_enabled()
    _logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_shown:
            _logging.enable_progress_bar()


def _plan_cache(config: TorchConfig, setup: _Setup, shapes: list[LayerShape]) -> MemoryPlan:
    """The final division: the weights are in, and the layers have shown what they store."""
    needs = sizing.needs_after_loading(shapes, setup.model_config.vocab_size, setup.dtype)
    free = _usable_bytes(config, setup.device, taken=setup.needs.weights)
    return plan_memory(config, needs, setup.longest, free)


def _runner(
    model: Any, shapes: list[LayerShape], plan: MemoryPlan, sampler: Sampler, setup: _Setup
) -> ModelRunner:
    """Allocate the cache and the scratch areas, and put everything together."""
    cache = KvCache(shapes, plan.pool_blocks, plan.block_tokens, setup.dtype, setup.device)
    widest = max(shape.numbers_per_token for shape in shapes)
    unit = unit_tokens(plan.block_tokens)
    group_tokens = max(unit, _GROUP_BYTES // (widest * setup.dtype.itemsize))
    # One sequence must fit, whatever the size of a group: up to the end of its last piece, or of its size.
    longest = max(plan.context_length + PIECE_TOKENS, ALONE_TOKENS)
    tokens = max(group_tokens, longest + unit)
    scratch = (
        Scratch(tokens * max(s.kv_heads * s.key_width for s in shapes), setup.dtype, setup.device),
        Scratch(tokens * max(s.kv_heads * s.value_width for s in shapes), setup.dtype, setup.device),
    )
    builder = BatchBuilder(plan.block_tokens, group_tokens, setup.device)
    return ModelRunner(model, cache, scratch, builder, Chooser(sampler))


def _info(config: TorchConfig, setup: _Setup, plan: MemoryPlan, packed_linears: int) -> EngineInfo:
    bos = getattr(setup.model_config, "bos_token_id", None)
    linears = "packed linears" if packed_linears else "plain linears"
    threads = "1 thread" if setup.threads == 1 else f"{setup.threads} threads"
    return EngineInfo(
        model=str(config.model_path),
        context_length=plan.context_length,
        max_num_seqs=config.max_num_seqs,
        vocab_size=setup.model_config.vocab_size,
        max_num_batched_tokens=config.step_tokens,
        max_prompt_tokens=None if config.is_chunked_prefill else config.step_tokens,
        block_tokens=plan.block_tokens,
        total_blocks=plan.pool_blocks,
        bos_token_id=1 if bos is None else bos,
        description=(
            f"{setup.device.type} {str(setup.dtype).removeprefix('torch.')}, {threads}, "
            f"{plan.pool_tokens:,} KV tokens in {plan.pool_blocks:,} blocks of {plan.block_tokens}, {linears}"
        ),
    )
