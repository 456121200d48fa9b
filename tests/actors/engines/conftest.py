"""The tiny tokenizer, and a tiny model that has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from actors.engines.grammars.vocabulary import read_vocabulary
from tests.actors.engines.grammars.world import Guide, write_tokenizer
from tests.actors.engines.torch.tiny_models import VOCAB_SIZE, make_model, save

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def guide(tmp_path_factory: pytest.TempPathFactory) -> Guide:
    """Grammars over the tiny tokenizer, whose model has more logits than it has tokens."""
    return Guide(read_vocabulary(write_tokenizer(tmp_path_factory.mktemp("tokenizer")), VOCAB_SIZE))


@pytest.fixture(scope="session")
def guided_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny llama with the tiny tokenizer."""
    folder = tmp_path_factory.mktemp("guided")
    return write_tokenizer(save(make_model("llama"), folder))
