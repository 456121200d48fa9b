"""The little that the double needs of a tokenizer and of a model's generation configuration."""

from __future__ import annotations

from typing import Protocol


class Tokenizer(Protocol):
    """As the tokenizers of transformers."""

    eos_token_id: int
    pad_token_id: int | None

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Return the ids of a text."""
        ...

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool) -> str:
        """Return the text of ids."""
        ...


class GenerationConfig(Protocol):
    """``generation_config.json`` of a model."""

    eos_token_id: int | list[int] | None
