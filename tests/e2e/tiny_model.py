"""A real model that loads in a second: the built-in one's tokenizer and template, small random weights."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy
from safetensors.numpy import save_file

_HIDDEN, _INNER, _LAYERS, _HEADS = 32, 48, 2, 2
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "generation_config.json")
_CHANGED = {
    "hidden_size": _HIDDEN,
    "intermediate_size": _INNER,
    "num_hidden_layers": _LAYERS,
    "num_attention_heads": _HEADS,
    "num_key_value_heads": 1,
    "head_dim": _HIDDEN // _HEADS,
    "max_position_embeddings": 2048,
}


def write_tiny_model(folder: Path, like: Path) -> Path:
    """Fill a folder with a model that the torch engine serves; always the same weights."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in _TOKENIZER:
        shutil.copy(like / name, folder / name)
    config = {**json.loads((like / "config.json").read_text(encoding="utf-8")), **_CHANGED}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    dice = numpy.random.default_rng(7)
    shapes = _shapes(config["vocab_size"])
    weights = {name: dice.standard_normal(shape, numpy.float32) for name, shape in shapes.items()}
    norms = {name: numpy.ones(shape, numpy.float32) for name, shape in shapes.items() if len(shape) == 1}
    save_file({**weights, **norms}, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def _shapes(vocab_size: int) -> dict[str, tuple[int, ...]]:
    head = _HIDDEN // _HEADS
    layer: dict[str, tuple[int, ...]] = {
        "self_attn.q_proj.weight": (_HIDDEN, _HIDDEN),
        "self_attn.k_proj.weight": (head, _HIDDEN),
        "self_attn.v_proj.weight": (head, _HIDDEN),
        "self_attn.o_proj.weight": (_HIDDEN, _HIDDEN),
        "mlp.gate_proj.weight": (_INNER, _HIDDEN),
        "mlp.up_proj.weight": (_INNER, _HIDDEN),
        "mlp.down_proj.weight": (_HIDDEN, _INNER),
        "input_layernorm.weight": (_HIDDEN,),
        "post_attention_layernorm.weight": (_HIDDEN,),
    }
    layers = {
        f"model.layers.{number}.{name}": shape for number in range(_LAYERS) for name, shape in layer.items()
    }
    return {
        "model.embed_tokens.weight": (vocab_size, _HIDDEN),
        "model.norm.weight": (_HIDDEN,),
        **layers,
    }
