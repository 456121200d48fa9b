"""How much memory a model takes: from its files before it is loaded, from its layers afterwards."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch

from actors.engines.torch.gate import weight_files
from actors.engines.torch.kv_cache import LayerShape
from actors.engines.torch.memory import Needs
from protocols.errors import EngineStartError

# safetensors: eight bytes give the length of a JSON header, in which each tensor has its shape.
_LENGTH_BYTES = 8
# Logits are worked on as float32.
_FLOAT_BYTES = 4
# Of one sampled row at the same moment, at most: two while the model makes it (a capped model; a bfloat16
# one with its float32 form), two of those that are sampled in this step and are not late, one as it was,
# for logprobs, two that processors and grammars may keep, the sampler's weights, and what it compares.
_ROW_COPIES = 9
# Of one row of a prompt: three while the model makes it. It is reduced at once, row by row.
_PROMPT_ROW_COPIES = 3


def estimate(path: Path, config: Any, dtype: torch.dtype, *, is_packed: bool) -> Needs:
    """Needs as far as the files tell them, before anything is loaded.

    is_packed: whether linear layers will be packed. Raises EngineStartError for a broken file.
    """
    tensors = [dtype.itemsize * numbers for file in weight_files(path) for numbers in _tensor_numbers(file)]
    weights = sum(tensors)
    if is_packed and getattr(config, "tie_word_embeddings", False):
        # The embedding stays as a table, and the output layer gets a packed copy.
        weights += dtype.itemsize * config.vocab_size * config.hidden_size
    layers = [dtype.itemsize * numbers for numbers in _layer_numbers(config)]
    return Needs(
        weights=weights,
        loading=2 * max(tensors),
        kv_per_token=sum(layers),
        scratch_per_token=max(layers),
        row=_ROW_COPIES * _FLOAT_BYTES * config.vocab_size,
        prompt_row=_PROMPT_ROW_COPIES * _FLOAT_BYTES * config.vocab_size,
    )


def needs_after_loading(shapes: list[LayerShape], vocab_size: int, dtype: torch.dtype) -> Needs:
    """Needs of what is still to come, now that the layers have been seen at work."""
    per_token = [dtype.itemsize * shape.numbers_per_token for shape in shapes]
    return Needs(
        weights=0,
        loading=0,
        kv_per_token=sum(per_token),
        scratch_per_token=max(per_token),
        row=_ROW_COPIES * _FLOAT_BYTES * vocab_size,
        prompt_row=_PROMPT_ROW_COPIES * _FLOAT_BYTES * vocab_size,
    )


def _layer_numbers(config: Any) -> list[int]:
    """Elements of K and V together, per token and layer; layers may differ."""
    each = getattr(config, "per_layer_config", None)
    layers = [each[i] if each is not None else config for i in range(config.num_hidden_layers)]
    return [_kv_numbers(layer) for layer in layers]


def _kv_numbers(layer: Any) -> int:
    if hasattr(layer, "qk_head_dim") and hasattr(layer, "v_head_dim"):
        # Latent attention reaches us expanded to all heads.
        return int(layer.num_attention_heads * (layer.qk_head_dim + layer.v_head_dim))
    heads = getattr(layer, "num_key_value_heads", None) or layer.num_attention_heads
    width = getattr(layer, "head_dim", None) or layer.hidden_size // layer.num_attention_heads
    return int(2 * heads * width)


def _tensor_numbers(file: Path) -> list[int]:
    """Elements of each tensor of one safetensors file."""
    try:
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(_LENGTH_BYTES), "little")
            if length > file.stat().st_size:
                raise ValueError("the header is longer than the file")
            header: dict[str, Any] = json.loads(stream.read(length))
        return [math.prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__"]
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise EngineStartError(f"{file} is not a safetensors file: {exc}.", "Get the model again.") from exc
