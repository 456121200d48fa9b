"""Which models the engine refuses, by rule and before anything is loaded.

Every rule exists because a model that breaks it would either ignore our attention function or keep
state outside the KV cache: it would run, and give wrong tokens without a word.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any, NoReturn, cast

from protocols.errors import EngineStartError

_LAYER_TYPES = frozenset({"full_attention", "sliding_attention"})
# Their frequencies follow the longest position in the batch, so neighbours would change results.
_MOVING_ROPES = frozenset({"dynamic", "longrope"})
_HINT = "Choose a decoder-only model with plain or sliding-window attention."


def check_folder(path: Path) -> None:
    """The files must be there, and the weights must be safetensors. Raises EngineStartError."""
    if not (path / "config.json").is_file():
        raise EngineStartError(f"{path} holds no config.json.", "model_path must be a model folder.")
    if not weight_files(path):
        raise EngineStartError(
            f"{path} holds no safetensors file.", "Only safetensors weights are loaded; convert the model."
        )


def weight_files(path: Path) -> list[Path]:
    """The safetensors files of a model folder: those the index names, or all."""
    index = path / "model.safetensors.index.json"
    if index.is_file():
        names = set(json.loads(index.read_text())["weight_map"].values())
        return [path / name for name in sorted(names)]
    return sorted(path.glob("*.safetensors"))


def check_config(config: Any) -> None:
    """Rules that the configuration alone decides. Raises EngineStartError with the model type."""
    kind = config.model_type
    if getattr(config, "is_encoder_decoder", False):
        _refuse(kind, "it is an encoder-decoder model")
    if getattr(config, "is_causal", True) is False:
        _refuse(kind, "its attention is not causal")
    if (
        getattr(config, "vision_config", None) is not None
        or getattr(config, "audio_config", None) is not None
    ):
        _refuse(kind, "it takes more than text")
    if getattr(config, "quantization_config", None) is not None:
        _refuse(kind, "its checkpoint is quantised")
    strange = set(getattr(config, "layer_types", None) or ()) - _LAYER_TYPES
    if strange:
        _refuse(kind, f"it has layers of type {', '.join(sorted(strange))}")


def check_class(model_class: Any, kind: str) -> None:
    """Rules that the model's class decides. Raises EngineStartError with the model type.

    None is a class that comes with the checkpoint: it is known, and checked, only once it is loaded.
    """
    if model_class is None:
        return
    if not model_class._can_set_attn_implementation():
        _refuse(kind, "its attention cannot be replaced (it does not use transformers' AttentionInterface)")
    if getattr(model_class, "_is_stateful", False):
        _refuse(kind, "it keeps state outside the KV cache")
    if "logits_to_keep" not in inspect.signature(model_class.forward).parameters:
        _refuse(kind, "its forward cannot limit logits to chosen rows (logits_to_keep)")


def context_limit(config: Any) -> int:
    """Longest context in tokens that this engine may give the model.

    Rotary embeddings that change beyond the length of pretraining are kept below it.
    """
    longest: int | None = getattr(config, "max_position_embeddings", None)
    if longest is None:
        _refuse(config.model_type, "its configuration names no max_position_embeddings")
    for rope in _ropes(config):
        if rope.get("rope_type") in _MOVING_ROPES:
            longest = min(longest, rope.get("original_max_position_embeddings") or longest)
    return longest


def _ropes(config: Any) -> list[dict[str, Any]]:
    """Rotary parameters: of the whole model, or of each layer type."""
    parameters: dict[str, Any] = getattr(config, "rope_parameters", None) or {}
    nested = [cast("dict[str, Any]", value) for value in parameters.values() if isinstance(value, dict)]
    return nested or [parameters]


def _refuse(kind: str, reason: str) -> NoReturn:
    raise EngineStartError(f"the torch engine does not run models of type {kind!r}: {reason}.", _HINT)
