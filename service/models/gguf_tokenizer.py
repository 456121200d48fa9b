"""The tokenizer of a GGUF file as the two files that Hugging Face's and Dynamo's tokenizers read."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

CONTROL_TOKEN_TYPE = 3
"""llama.cpp's `LLAMA_TOKEN_TYPE_CONTROL`: never part of plain text."""


def write_tokenizer(metadata: Mapping[str, Any], folder: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json and special_tokens_map.json.

    Only the byte-level BPE of the SmolLM family is known (`tokenizer.ggml.pre` = smollm: each digit is a
    token of its own, the rest is split as GPT-2 does). Raises ValueError for any other.
    """
    kind = (metadata["tokenizer.ggml.model"], metadata["tokenizer.ggml.pre"])
    if kind != ("gpt2", "smollm"):
        raise ValueError(
            f"tokenizer.ggml.model and .pre are {kind}; ('gpt2', 'smollm') is what can be converted"
        )
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    special = [
        token
        for token, token_type in zip(tokens, metadata["tokenizer.ggml.token_type"], strict=True)
        if token_type == CONTROL_TOKEN_TYPE
    ]
    bpe_tokenizer(tokens, metadata["tokenizer.ggml.merges"], special).save(str(folder / "tokenizer.json"))
    names: dict[str, str] = {
        "bos_token": tokens[metadata["tokenizer.ggml.bos_token_id"]],
        "eos_token": tokens[metadata["tokenizer.ggml.eos_token_id"]],
        "unk_token": tokens[metadata["tokenizer.ggml.unknown_token_id"]],
        "pad_token": tokens[metadata["tokenizer.ggml.padding_token_id"]],
    }
    write_json(folder / "special_tokens_map.json", names)
    write_json(folder / "tokenizer_config.json", tokenizer_config(metadata, special) | names)


def bpe_tokenizer(tokens: list[str], merges: list[str], special: list[str]) -> Tokenizer:
    """Build the tokenizer itself; the place of a token in `tokens` is its id."""
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=pairs))
    tokenizer.pre_tokenizer = Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = ByteLevelDecoder()
    marked = [AddedToken(token, special=True, normalized=False) for token in special]
    tokenizer.add_special_tokens(marked)  # pyright: ignore[reportUnknownMemberType] - a bare list in the stub
    return tokenizer


def tokenizer_config(metadata: Mapping[str, Any], special: list[str]) -> dict[str, Any]:
    """Return what transformers and Dynamo's frontend read beside tokenizer.json, the chat template first."""
    return {
        # The class that takes tokenizer.json as it is; the model's own class builds a pipeline of its own.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": bool(metadata["tokenizer.ggml.add_bos_token"]),
        "add_prefix_space": bool(metadata["tokenizer.ggml.add_space_prefix"]),
        "additional_special_tokens": special,
        "chat_template": metadata["tokenizer.chat_template"],
        "clean_up_tokenization_spaces": False,
        "model_max_length": metadata["llama.context_length"],
    }


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write one readable JSON file."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
