"""From a model folder to something that can step. Runs in the engine's thread, in stages.

Between stages a stop is noticed. The order saves the operator's time and memory: what can be
refused from files is refused before a weight is read.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from safetensors import safe_open
from transformers import AttentionInterface, AutoConfig

from actors.engines.torch import gate, selftest
from actors.engines.torch.attention import IMPLEMENTATION, attention_function
from actors.engines.torch.batch import BatchBuilder
from actors.engines.torch.config import TorchConfig
from actors.engines.torch.kv_cache import KvCache, LayerShape, Scratch
from actors.engines.torch.memory import MemoryPlan, Needs, available_bytes, plan_memory
from actors.engines.torch.runner import ModelRunner
from actors.engines.torch.sampler import Sampler
from actors.engines.torch.surgery import Surgery, operate
from protocols.engine import EngineInfo
from protocols.errors import EngineStartError

Checkpoint = Callable[[str, float], None]
"""Called with the stage and the fraction of the whole start; raises StartStopped to end it."""

_GIB = 2**30
# Gathered K and V of one attention call: large enough to share the call, small enough for the caches.
_GROUP_BYTES = 4 * 2**20


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """What the step loop needs."""

    runner: ModelRunner
    plan: MemoryPlan
    info: EngineInfo


@dataclass(frozen=True, slots=True)
class _Target:
    """Where and how the model runs."""

    device: torch.device
    dtype: torch.dtype

    @property
    def can_operate(self) -> bool:
        """Whether module surgery applies: its operators were measured for float32 on CPU."""
        return self.device.type == "cpu" and self.dtype is torch.float32


@torch.inference_mode()
def load(config: TorchConfig, checkpoint: Checkpoint) -> LoadedModel:
    """Raises EngineStartError, or what ``checkpoint`` raises."""
    checkpoint("checking", 0.05)
    config.check()
    gate.check_folder(config.model_path)
    target = _target(config)
    threads = config.threads or len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    model_config = AutoConfig.from_pretrained(
        config.model_path, trust_remote_code=config.trust_remote_code, local_files_only=True
    )
    gate.check_config(model_config)
    longest = gate.context_limit(model_config)
    free = _usable_bytes(config, target)
    plan_memory(config, _estimate(config, model_config, target), longest, free)
    checkpoint("weights", 0.1)
    model = _load_weights(config, model_config, target)
    checkpoint("reference", 0.5)
    expected = selftest.reference(model, model_config.vocab_size, target.device)
    AttentionInterface.register(IMPLEMENTATION, attention_function)
    model.set_attn_implementation(IMPLEMENTATION)
    done = Surgery()
    if target.can_operate:
        done = operate(model, lambda fraction: checkpoint("packing", 0.55 + 0.25 * fraction))
    checkpoint("self-test", 0.8)
    shapes = selftest.probe_shapes(model, model_config, target.device)
    selftest.check_ragged(model, model_config, expected, shapes)
    checkpoint("kv cache", 0.9)
    needs = _needs_after(shapes, model_config.vocab_size, target)
    taken = 0 if config.memory_gb is None else _parameter_bytes(model)
    plan = plan_memory(config, needs, longest, _usable_bytes(config, target) - taken)
    runner = _runner(config, model, shapes, plan, target)
    checkpoint("ready", 1.0)
    info = _info(config, model_config, plan, _describe(target, threads, plan, done))
    return LoadedModel(runner, plan, info)


def _target(config: TorchConfig) -> _Target:
    kind = config.device
    if kind == "auto":
        kind = "cuda" if torch.cuda.is_available() else "cpu"
    if kind == "cuda" and not torch.cuda.is_available():
        raise EngineStartError("device is cuda, but torch sees no CUDA device.", "Use device auto or cpu.")
    dtype = config.dtype
    if dtype == "auto":
        dtype = "float32" if kind == "cpu" else "bfloat16"
    return _Target(torch.device(kind), torch.float32 if dtype == "float32" else torch.bfloat16)


def _usable_bytes(config: TorchConfig, target: _Target) -> int:
    """Bytes the engine may still take; a limit set by the operator does not make more memory."""
    free = available_bytes() if target.device.type == "cpu" else int(torch.cuda.mem_get_info()[0])
    return free if config.memory_gb is None else min(free, int(config.memory_gb * _GIB))


def _load_weights(config: TorchConfig, model_config: Any, target: _Target) -> Any:
    mapping: Any = transformers.AutoModelForCausalLM
    model_class = mapping._model_mapping.get(type(model_config), None)
    if model_class is not None:
        gate.check_class(model_class, model_config.model_type)
    model = mapping.from_pretrained(
        config.model_path,
        config=model_config,
        dtype=target.dtype,
        attn_implementation="eager",
        use_safetensors=True,
        local_files_only=True,
        trust_remote_code=config.trust_remote_code,
    )
    gate.check_class(type(model), model_config.model_type)
    return model.to(target.device).eval().requires_grad_(False)


def _estimate(config: TorchConfig, model_config: Any, target: _Target) -> Needs:
    """Needs as far as the files tell them, before anything is loaded."""
    size = target.dtype.itemsize
    sizes: list[int] = []
    for path in gate.weight_files(config.model_path):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - not a mapping
                shape = file.get_slice(name).get_shape()
                sizes.append(size * int(torch.Size(shape).numel()))
    weights = sum(sizes)
    if target.can_operate and getattr(model_config, "tie_word_embeddings", False):
        # The embedding stays as a table, and the output layer gets a packed copy.
        weights += size * model_config.vocab_size * model_config.hidden_size
    heads = getattr(model_config, "num_key_value_heads", None) or model_config.num_attention_heads
    width = (
        getattr(model_config, "head_dim", None)
        or model_config.hidden_size // model_config.num_attention_heads
    )
    layer = size * 2 * heads * width
    return Needs(
        weights=weights,
        loading=2 * max(sizes, default=0),
        kv_per_token=layer * model_config.num_hidden_layers,
        scratch_per_token=layer,
        row=_row_bytes(model_config.vocab_size),
    )


def _needs_after(shapes: list[LayerShape], vocab_size: int, target: _Target) -> Needs:
    """Needs of what is still to come, now that the layers have been seen at work."""
    per_token = [target.dtype.itemsize * shape.numbers_per_token for shape in shapes]
    return Needs(
        weights=0,
        loading=0,
        kv_per_token=sum(per_token),
        scratch_per_token=max(per_token),
        row=_row_bytes(vocab_size),
    )


def _row_bytes(vocab_size: int) -> int:
    """Logits from the model, their float32 form, and the sampler's weights."""
    return 3 * 4 * vocab_size


def _parameter_bytes(model: Any) -> int:
    return sum(parameter.nbytes for parameter in model.parameters())


def _runner(
    config: TorchConfig, model: Any, shapes: list[LayerShape], plan: MemoryPlan, target: _Target
) -> ModelRunner:
    cache = KvCache(shapes, plan.pool_blocks, plan.block_tokens, target.dtype, target.device)
    widest = max(shape.numbers_per_token for shape in shapes)
    group_tokens = max(plan.block_tokens, _GROUP_BYTES // (widest * target.dtype.itemsize))
    context_tokens = -(-plan.context_length // plan.block_tokens) * plan.block_tokens
    tokens = max(group_tokens, context_tokens)
    scratch = (
        Scratch(tokens * max(s.kv_heads * s.key_width for s in shapes), target.dtype, target.device),
        Scratch(tokens * max(s.kv_heads * s.value_width for s in shapes), target.dtype, target.device),
    )
    builder = BatchBuilder(plan.block_tokens, group_tokens, target.device)
    vocab_size = model.get_output_embeddings().out_features
    return ModelRunner(
        model, cache, scratch, builder, Sampler(config.max_num_seqs, vocab_size, target.device)
    )


def _info(config: TorchConfig, model_config: Any, plan: MemoryPlan, description: str) -> EngineInfo:
    bos = getattr(model_config, "bos_token_id", None)
    return EngineInfo(
        model=str(config.model_path),
        context_length=plan.context_length,
        max_num_seqs=config.max_num_seqs,
        vocab_size=model_config.vocab_size,
        max_num_batched_tokens=config.step_tokens,
        max_prompt_tokens=None if config.is_chunked_prefill else config.step_tokens,
        block_tokens=plan.block_tokens,
        total_blocks=plan.pool_blocks,
        bos_token_id=1 if bos is None else bos,
        description=description,
    )


def _describe(target: _Target, threads: int, plan: MemoryPlan, done: Surgery) -> str:
    linears = "packed linears" if done.packed_linears else "plain linears"
    return (
        f"{target.device.type} {str(target.dtype).removeprefix('torch.')}, {threads} threads, "
        f"{plan.pool_tokens:,} KV tokens in {plan.pool_blocks:,} blocks of {plan.block_tokens}, {linears}"
    )
