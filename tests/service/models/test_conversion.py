"""Promises of the converter: the folder means exactly what the GGUF file meant."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from service.models.gguf_conversion import convert
from tests.service.models.tiny import CONTROL, TEMPLATE, write_tiny_gguf


@pytest.fixture(scope="module")
def converted(tiny_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the tiny model's folder."""
    folder = tmp_path_factory.mktemp("converted")
    convert(tiny_wheel.with_name("tiny.gguf"), folder, lambda part: None)
    return folder


@pytest.mark.timeout(120)  # the first import of transformers after an installation compiles it
def test_weights_equal_those_of_transformers_own_loader(converted: Path, tiny_wheel: Path) -> None:
    """Every tensor is bit for bit what transformers makes of the same GGUF file."""
    import torch
    from transformers import AutoModelForCausalLM

    ours = AutoModelForCausalLM.from_pretrained(converted, dtype=torch.float32, local_files_only=True)
    theirs = AutoModelForCausalLM.from_pretrained(
        tiny_wheel.parent, gguf_file="tiny.gguf", dtype=torch.float32, local_files_only=True
    )
    wanted = theirs.state_dict()
    found = ours.state_dict()
    assert found.keys() == wanted.keys()
    assert [name for name in wanted if not torch.equal(found[name], wanted[name])] == []
    for name in ("rope_parameters", "num_key_value_heads", "head_dim", "tie_word_embeddings", "eos_token_id"):
        assert getattr(ours.config, name) == getattr(theirs.config, name)


def test_the_chat_template_and_the_special_tokens_survive(converted: Path) -> None:
    """What the frontend renders chats with is that of the GGUF file."""
    config = json.loads((converted / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert config["chat_template"] == TEMPLATE
    assert (config["bos_token"], config["eos_token"], config["pad_token"]) == (
        CONTROL[1],
        CONTROL[2],
        CONTROL[2],
    )
    generation = json.loads((converted / "generation_config.json").read_text(encoding="utf-8"))
    assert generation == {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}


@pytest.mark.parametrize(
    "text", ["hello 2024", "naïve — 日本\n\ttab", "  two  spaces ", "<|im_start|>x<|im_end|>"]
)
def test_text_survives_the_tokenizer(converted: Path, text: str) -> None:
    """Decoding gives back what was encoded, special tokens included."""
    tokenizer = Tokenizer.from_file(str(converted / "tokenizer.json"))
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_tokens_are_those_of_the_vocabulary(converted: Path) -> None:
    """Merges are applied in their order, digits stay single, special tokens are one token and not text."""
    tokenizer = Tokenizer.from_file(str(converted / "tokenizer.json"))
    assert tokenizer.encode("hello 20").tokens == ["hell", "o", "Ġ", "2", "0"]
    encoded = tokenizer.encode("<|im_end|>h")
    assert encoded.ids[0] == 2
    assert tokenizer.decode(encoded.ids, skip_special_tokens=True) == "h"


def test_the_converter_says_how_far_it_is(tiny_wheel: Path, tmp_path: Path) -> None:
    """Parts rise to exactly 1."""
    parts: list[float] = []
    convert(tiny_wheel.with_name("tiny.gguf"), tmp_path, parts.append)
    assert parts == sorted(parts)
    assert parts[-1] == 1.0


def test_an_architecture_that_is_not_known_is_refused(tmp_path: Path) -> None:
    """Another architecture is named, not guessed at."""
    write_tiny_gguf(tmp_path / "other.gguf", architecture="mamba")
    with pytest.raises(ValueError, match=r"general\.architecture is 'mamba'"):
        convert(tmp_path / "other.gguf", tmp_path, lambda part: None)


def test_a_tensor_that_is_not_known_is_refused(tmp_path: Path) -> None:
    """A weight that the Llama layout has no place for stops the conversion instead of being dropped."""
    write_tiny_gguf(tmp_path / "odd.gguf", extra_tensor="blk.0.attn_gate")
    with pytest.raises(ValueError, match=r"'blk\.0\.attn_gate\.weight' is not part of a Llama model"):
        convert(tmp_path / "odd.gguf", tmp_path, lambda part: None)
