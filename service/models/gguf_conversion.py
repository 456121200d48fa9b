"""From a GGUF file to a Hugging Face folder with float32 weights, for models of the Llama architecture.

Reads the file once (transformers' own loader reads it three times and takes four times as long) and needs
neither torch nor transformers. A test holds the result against transformers' loader, bit for bit.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, GGUFValueType, dequantize
from numpy.typing import NDArray
from safetensors.numpy import save_file  # pyright: ignore[reportUnknownVariableType] - a bare os.PathLike

from service.models.gguf_tokenizer import write_json, write_tokenizer
from service.models.progress import Advance

OUTER_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}

GENERATION_NAMES = ("bos_token_id", "eos_token_id", "pad_token_id")


def convert(gguf_file: Path, folder: Path, advance: Advance) -> None:
    """Fill `folder` from `gguf_file`. `advance` gets the part of the tensors that is done.

    Raises ValueError when the file holds something this converter does not know.
    """
    reader = GGUFReader(gguf_file)
    metadata = {name: value_of(field) for name, field in reader.fields.items()}
    if metadata["general.architecture"] != "llama":
        raise ValueError(
            f"general.architecture is {metadata['general.architecture']!r}, only 'llama' is known"
        )
    write_tokenizer(metadata, folder)
    tensors = read_tensors(reader.tensors, metadata, advance)
    config = model_config(metadata, is_tied="lm_head.weight" not in tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)  # like its neighbours; the library makes it private
    write_json(folder / "config.json", config)
    write_json(folder / "generation_config.json", {name: config[name] for name in GENERATION_NAMES})


def value_of(field: Any) -> Any:
    """Return a field's value in plain Python; the library's `contents()` gives numpy scalars in arrays."""
    if field.types[0] == GGUFValueType.ARRAY and field.types[-1] != GGUFValueType.STRING:
        return [field.parts[index][0].item() for index in field.data]
    return field.contents()


def read_tensors(
    stored: list[Any], metadata: Mapping[str, Any], advance: Advance
) -> dict[str, NDArray[np.float32]]:
    """Return every tensor dequantised, under the name and in the layout that transformers uses."""
    heads = {
        "attn_q": metadata["llama.attention.head_count"],
        "attn_k": metadata["llama.attention.head_count_kv"],
    }
    tensors: dict[str, NDArray[np.float32]] = {}
    for done, tensor in enumerate(stored, start=1):
        weights = np.ascontiguousarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        kind = tensor.name.split(".")[-2]
        if kind in heads:
            weights = split_rotary_halves(weights, heads[kind])
        tensors[transformers_name(tensor.name)] = weights
        advance(done / len(stored))
    return tensors


def transformers_name(gguf_name: str) -> str:
    """Translate one tensor's name; raises ValueError for a name that is not in the tables."""
    match gguf_name.split("."):
        case ["blk", layer, kind, "weight"] if kind in LAYER_NAMES:
            return f"model.layers.{layer}.{LAYER_NAMES[kind]}.weight"
        case [kind, "weight"] if kind in OUTER_NAMES:
            return f"{OUTER_NAMES[kind]}.weight"
        case _:
            raise ValueError(f"tensor {gguf_name!r} is not part of a Llama model")


def split_rotary_halves(weights: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Undo GGUF's order of rotary dimensions: pairs (0, 1), (2, 3), ... there, two halves in transformers.

    `weights` is (heads x head_dim, hidden); the rows of each head are reordered.
    """
    half = weights.shape[0] // heads // 2
    pairs = weights.reshape(heads, half, 2, weights.shape[1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(weights.shape)


def model_config(metadata: Mapping[str, Any], *, is_tied: bool) -> dict[str, Any]:
    """Return config.json: everything that decides how the weights are used."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "bos_token_id": metadata["tokenizer.ggml.bos_token_id"],
        "dtype": "float32",
        "eos_token_id": metadata["tokenizer.ggml.eos_token_id"],
        "head_dim": metadata["llama.rope.dimension_count"],
        "hidden_act": "silu",
        "hidden_size": metadata["llama.embedding_length"],
        "intermediate_size": metadata["llama.feed_forward_length"],
        "max_position_embeddings": metadata["llama.context_length"],
        "mlp_bias": False,
        "num_attention_heads": metadata["llama.attention.head_count"],
        "num_hidden_layers": metadata["llama.block_count"],
        "num_key_value_heads": metadata["llama.attention.head_count_kv"],
        "pad_token_id": metadata["tokenizer.ggml.padding_token_id"],
        # Stored as float32: 1e-05 comes back as 9.999999747378752e-06 without this.
        "rms_norm_eps": float(f"{metadata['llama.attention.layer_norm_rms_epsilon']:.6g}"),
        "rope_theta": metadata["llama.rope.freq_base"],
        "tie_word_embeddings": is_tied,
        "vocab_size": metadata["llama.vocab_size"],
    }
