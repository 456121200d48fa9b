"""What a model's configuration says of it, for engines that do not read it themselves."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from service.models.errors import ModelInvalid

# Under which of these a family of models keeps how long a text may be.
_CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length", "max_seq_len")
_DEFAULT_BOS = 1


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """vocab_size: every id of its tokenizer is below it. context_length: in tokens; None: not said.

    is_encoder_decoder: a prompt is read by one part of it, and answered by another that begins anew.
    """

    vocab_size: int
    context_length: int | None
    bos_token_id: int
    is_encoder_decoder: bool = False

    @classmethod
    def read(cls, folder: Path) -> "ModelFacts":
        """From ``config.json``, which is there. Raises ModelInvalid where it does not say a vocabulary."""
        whole: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        # Models that also see or hear keep what concerns text in a part of its own.
        part: object = whole.get("text_config")
        config = {**(cast("dict[str, Any]", part) if isinstance(part, dict) else {}), **whole}
        size: object = config.get("vocab_size")
        if not isinstance(size, int) or size < 1:
            raise ModelInvalid(
                str(folder),
                f"config.json gives vocab_size {size!r}",
                "It must be a whole number above 0.",
            )
        return cls(
            size,
            _context_length(config),
            _bos_token_id(config.get("bos_token_id"), size),
            config.get("is_encoder_decoder") is True,
        )


def _context_length(config: dict[str, Any]) -> int | None:
    found = [config[key] for key in _CONTEXT_KEYS if isinstance(config.get(key), int)]
    return found[0] if found and found[0] > 1 else None


def _bos_token_id(value: object, vocab_size: int) -> int:
    """Of several the first; any id does for a health check."""
    listed = cast("list[object]", value) if isinstance(value, list) else [value]
    first = listed[0] if listed else None
    if isinstance(first, int) and 0 <= first < vocab_size:
        return first
    return min(_DEFAULT_BOS, vocab_size - 1)
