"""How a model says a given text: token ids from the folder's tokenizer, and the id that ends an answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from tokenizers import Tokenizer

from service.models.errors import ModelInvalid


def token_ids_of(folder: Path, text: str) -> tuple[int, ...]:
    """Without special tokens. Raises ModelInvalid when the folder's tokenizer cannot say exactly this."""
    remedy = "serve a model with a tokenizer.json that can"
    try:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as exc:  # of the library: it has no type of its own
        raise ModelInvalid(str(folder), f"its tokenizer.json cannot be read ({exc})", remedy) from exc
    token_ids = tokenizer.encode(text, add_special_tokens=False).ids
    said = tokenizer.decode(token_ids, skip_special_tokens=False)
    if said.strip() != text:
        raise ModelInvalid(str(folder), f"its tokenizer cannot say {text!r} (it says {said!r})", remedy)
    return tuple(token_ids)


def end_id_of(folder: Path) -> int:
    """The first id that ends an answer. Raises ModelInvalid when neither configuration names one."""
    for name in ("generation_config.json", "config.json"):
        for part in _parts(folder / name):
            found: object = part.get("eos_token_id")
            if isinstance(found, list):
                found = next(iter(cast("list[object]", found)), None)
            if isinstance(found, int):
                return found
    remedy = "write eos_token_id into its generation_config.json"
    raise ModelInvalid(str(folder), "its configuration names no end-of-sequence token", remedy)


def _parts(file: Path) -> list[dict[str, Any]]:
    """The file's object and the part of it that is about text, where a model has one."""
    try:
        whole: object = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    if not isinstance(whole, dict):
        return []
    config = cast("dict[str, Any]", whole)
    text: object = config.get("text_config")
    return [config, cast("dict[str, Any]", text)] if isinstance(text, dict) else [config]
