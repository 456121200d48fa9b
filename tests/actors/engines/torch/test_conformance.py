"""The embedded engine keeps the promises of all engines, roomy and short of blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from actors.engines.torch import TorchConfig, TorchEngine
from tests.conformance.check_engine import EngineConformance
from tests.conformance.promises_pause import PausePromises

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class TestTorchEngine(EngineConformance, PausePromises):
    @pytest.fixture(params=["asyncio"])
    def anyio_backend(self, request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
        """One loop: which one wakes up to a step is the bridge's affair, and tested there."""
        return request.param, {"use_uvloop": False}

    @pytest.fixture(params=[None, 96], ids=["roomy", "short-of-blocks"])
    def make_engine(
        self, request: pytest.FixtureRequest, model_folder: Callable[[str], Path]
    ) -> Callable[[], TorchEngine]:
        config = TorchConfig(
            model_path=model_folder("llama"),
            max_num_seqs=4,
            step_tokens=24,
            max_seq_len=96,
            kv_block_tokens=4,
            kv_pool_tokens=request.param,
            threads=1,
        )
        return lambda: TorchEngine(config)
