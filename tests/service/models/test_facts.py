"""What is read of a model's configuration, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from service.models import ModelInvalid
from service.models.facts import ModelFacts


def facts(folder: Path, **config: Any) -> ModelFacts:
    """Of a folder with this configuration."""
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return ModelFacts.read(folder)


def test_a_plain_model(tmp_path: Path) -> None:
    """By the keys that most have."""
    found = facts(tmp_path, vocab_size=100, max_position_embeddings=64, bos_token_id=3)
    assert found == ModelFacts(vocab_size=100, context_length=64, bos_token_id=3)


def test_a_model_that_sees_keeps_what_concerns_text_apart(tmp_path: Path) -> None:
    """The outer part says the same of nothing, or wins."""
    text = {"vocab_size": 100, "max_position_embeddings": 64, "bos_token_id": 3}
    assert facts(tmp_path, text_config=text) == ModelFacts(100, 64, 3)
    assert facts(tmp_path, text_config=text, vocab_size=200).vocab_size == 200


@pytest.mark.parametrize("key", ["n_positions", "max_sequence_length", "seq_length", "max_seq_len"])
def test_families_call_the_context_differently(tmp_path: Path, key: str) -> None:
    """One that says nothing has none: the operator has to."""
    assert facts(tmp_path, vocab_size=100, **{key: 64}).context_length == 64
    assert facts(tmp_path, vocab_size=100).context_length is None


@pytest.mark.parametrize(("bos", "id_"), [(None, 1), ([5, 6], 5), ([], 1), (100, 1), (-1, 1), ("<s>", 1)])
def test_a_health_check_always_has_a_first_token(tmp_path: Path, bos: object, id_: int) -> None:
    """Of the vocabulary."""
    assert facts(tmp_path, vocab_size=100, bos_token_id=bos).bos_token_id == id_
    assert facts(tmp_path, vocab_size=1).bos_token_id == 0


@pytest.mark.parametrize("size", [None, 0, -1, "100", 1.5])
def test_a_model_without_a_vocabulary_is_refused(tmp_path: Path, size: object) -> None:
    """By name: a prompt could not be told from nonsense."""
    with pytest.raises(ModelInvalid, match="vocab_size"):
        facts(tmp_path, vocab_size=size)
