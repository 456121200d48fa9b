"""Folders with tiny models, made once per session; engines that are stopped whatever happens."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from actors.engines.torch import TorchConfig, TorchEngine
from tests.conformance.reader import EngineReader

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    Opener = Callable[..., AbstractAsyncContextManager[EngineReader]]

# The engine asks MKL itself, but here the first product of the process may be a test's own.
os.environ.setdefault("MKL_CBWR", "AUTO")

# Small enough that a batch, a chunk and a block end in the middle of things.
_SMALL: dict[str, Any] = {"max_num_seqs": 8, "step_tokens": 96, "kv_block_tokens": 8, "threads": 1}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folder of the tiny model of a kind."""
    from tests.actors.engines.torch.tiny_models import make_model, save

    made: dict[str, Path] = {}

    def folder(kind: str) -> Path:
        if kind not in made:
            made[kind] = save(make_model(kind), tmp_path_factory.mktemp(kind))
        return made[kind]

    return folder


@pytest.fixture
def open_engine(model_folder: Callable[[str], Path]) -> Opener:
    """A started engine and its reader; afterwards nothing is left running."""

    @asynccontextmanager
    async def opened(kind: str = "llama", **config: Any) -> AsyncGenerator[EngineReader]:
        settings = {"model_path": model_folder(kind), **_SMALL, **config}
        engine = TorchEngine(TorchConfig(**settings))
        try:
            yield EngineReader(engine, await engine.start())
        finally:
            await engine.stop()

    return opened
