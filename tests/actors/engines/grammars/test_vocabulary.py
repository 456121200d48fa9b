"""Which tokenizers grammars can be followed with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from actors.engines.grammars.vocabulary import NoTokenizer, read_vocabulary
from tests.actors.engines.grammars.world import CALL, PLAIN, SPECIAL, THINK, Guide, write_tokenizer
from tests.actors.engines.torch.tiny_models import VOCAB_SIZE

if TYPE_CHECKING:
    from pathlib import Path


def test_special_tokens_are_found_in_text(guide: Guide) -> None:
    """Text is cut at the special tokens in it, whole and in order."""
    call, think = guide.vocabulary.special[CALL], guide.vocabulary.special[THINK]
    assert guide.vocabulary.parts_of(f"a{CALL}{CALL}<|cal{THINK}") == ["a", call, call, "<|cal", think]
    assert guide.vocabulary.parts_of("") == []


def test_text_that_looks_special_is_text(guide: Guide) -> None:
    """Only tokens that the tokenizer calls special are; the letter of the last byte is a letter."""
    assert set(guide.vocabulary.special) == set(SPECIAL)
    assert guide.vocabulary.parts_of("ÿ") == ["ÿ"]
    assert guide.vocabulary.parts_of(PLAIN) == [PLAIN]
    assert guide.vocabulary.find(PLAIN) == guide.vocabulary.tokens - 1


def test_tokens_are_found(guide: Guide) -> None:
    """A token is known by its name, by its text and by its id; a text of several tokens is none."""
    find, true = guide.vocabulary.find, guide.ids("t")[0]
    assert [find(CALL), find("t"), find(true)] == [guide.vocabulary.special[CALL], true, true]
    assert [find("no token"), find(VOCAB_SIZE), find(-1), find(True), find(None)] == [None] * 5
    assert guide.vocabulary.text_of(guide.vocabulary.special[CALL]) == CALL


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    """A folder without a tokenizer is told apart, with a reason."""
    with pytest.raises(NoTokenizer, match="no tokenizer that can be read"):
        read_vocabulary(tmp_path, VOCAB_SIZE)


def test_a_broken_tokenizer(tmp_path: Path) -> None:
    """A tokenizer.json that is none is a reason too, and no crash."""
    folder = write_tokenizer(tmp_path / "model")
    (folder / "tokenizer.json").write_text('{"version": "1.0", "model": {')
    with pytest.raises(NoTokenizer):
        read_vocabulary(folder, VOCAB_SIZE)


def test_a_tokenizer_without_an_end(tmp_path: Path) -> None:
    """Without a token that ends answers no grammar could say that it is complete."""
    with pytest.raises(NoTokenizer, match="no token that ends an answer"):
        read_vocabulary(write_tokenizer(tmp_path / "model", ends=None), VOCAB_SIZE)


def test_the_width_is_that_of_the_wider(guide: Guide, tmp_path: Path) -> None:
    """A model may have more logits than tokens, or fewer; end tokens without logits end nothing."""
    assert guide.vocabulary.width == VOCAB_SIZE
    folder = write_tokenizer(tmp_path / "model")
    (folder / "generation_config.json").write_text('{"eos_token_id": 5}')
    narrow = read_vocabulary(folder, 100)
    assert (narrow.width, narrow.tokens, narrow.ends) == (
        guide.vocabulary.tokens,
        guide.vocabulary.tokens,
        (5,),
    )
