"""The synthetic engine keeps the promises of all engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from actors.engines.synthetic import SyntheticConfig, SyntheticEngine
from tests.conformance.check_engine import EngineConformance
from tests.conformance.promises_pause import PausePromises

if TYPE_CHECKING:
    from collections.abc import Callable

    from protocols.engine import Engine


class TestSyntheticEngine(EngineConformance, PausePromises):
    @pytest.fixture(params=[0.0, 1.0], ids=["as-fast-as-it-can", "1-ms-steps"])
    def make_engine(self, request: pytest.FixtureRequest) -> Callable[[], Engine]:
        config = SyntheticConfig(step_ms=request.param, max_num_seqs=4, context_length=128)
        return lambda: SyntheticEngine(config)
