"""The embedded engine keeps the promises of all engines, with a tiny random model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from actors.engines.torch import TorchConfig, TorchEngine
from protocols.spec import Guided, GuidedKind, ProcessorEntry
from tests.conformance.check_engine import EngineConformance
from tests.conformance.forcing import Forcing
from tests.conformance.promises_guided import GuidedPromises
from tests.conformance.promises_logprobs import LogprobPromises
from tests.conformance.promises_pause import PausePromises
from tests.conformance.promises_processors import ProcessorPromises
from tests.conformance.promises_sampling import SamplingPromises
from tests.conformance.tiny_llama import write_tiny_llama

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from protocols.engine import Engine


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("tiny-llama"))


@pytest.mark.timeout(60)  # the first test imports torch and transformers: 8 s on two quiet cores
class TestTorchEngine(
    EngineConformance, PausePromises, SamplingPromises, LogprobPromises, GuidedPromises, ProcessorPromises
):
    @pytest.fixture
    def anyio_backend(self) -> tuple[str, dict[str, bool]]:
        """The worker's loop only: this engine touches it through the bridge, whose own tests take both."""
        return "asyncio", {"use_uvloop": True}

    @pytest.fixture(params=[None, 192], ids=["cache-for-all", "cache-for-one-and-a-half"])
    def make_engine(self, model_path: Path, request: pytest.FixtureRequest) -> Callable[[], Engine]:
        """One thread for the operators: on so small a model a second one only waits."""
        config = TorchConfig(
            model_path=model_path,
            device="cpu",
            max_num_seqs=4,
            step_tokens=64,
            kv_pool_tokens=request.param,
            threads=1,
            processors={"forcing": Forcing},
        )
        return lambda: TorchEngine(config)

    @pytest.fixture
    def constraint(self) -> Guided:
        """Some letters, and an end."""
        return Guided(kind=GuidedKind.REGEX, constraint="[a-e]{3,6}!")

    @pytest.fixture
    def forcing(self) -> ProcessorEntry:
        return ProcessorEntry(name="forcing", options={"token": self.FORCED})
