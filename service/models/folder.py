"""What a folder must hold to be served: the files that the engine and Dynamo's frontend both read."""

import json
from pathlib import Path

from service.models.errors import ModelInvalid

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "tiktoken.model")


def require_model_files(name: str, folder: Path) -> None:
    """Raise ModelInvalid, naming what is missing, unless `folder` has a configuration and a tokenizer."""
    missing: list[str] = []
    if not (folder / "config.json").is_file():
        missing.append("config.json")
    if not any((folder / file).is_file() for file in TOKENIZER_FILES):
        missing.append(f"tokenizer ({' or '.join(TOKENIZER_FILES)})")
    if missing:
        raise ModelInvalid(
            name,
            f"the folder {folder} has no {' and no '.join(missing)}",
            "name the folder of a Hugging Face model",
        )
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise ModelInvalid(
            name, f"{folder / 'config.json'} cannot be read ({exc})", "mend or replace it"
        ) from exc
    if not isinstance(config, dict):
        raise ModelInvalid(name, f"{folder / 'config.json'} is not a JSON object", "mend or replace it")


def require_safetensors(name: str, folder: Path) -> None:
    """Raise ModelInvalid unless `folder` has safetensors weights: loading other formats can run code."""
    if not any(folder.glob("*.safetensors")):
        raise ModelInvalid(
            name,
            "it has no *.safetensors file",
            "only safetensors weights are loaded; name another model or convert it",
        )
