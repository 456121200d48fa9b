"""The embedded engine keeps the promises of all engines, with a tiny random model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from actors.engines.torch import TorchConfig, TorchEngine
from protocols.spec import Guided, GuidedKind, ProcessorEntry
from tests.conformance.byte_tokenizer import END_ID, VOCAB_SIZE, write_byte_tokenizer
from tests.conformance.check_engine import EngineConformance
from tests.conformance.promises_guided import GuidedPromises
from tests.conformance.promises_logprobs import LogprobPromises
from tests.conformance.promises_pause import PausePromises
from tests.conformance.promises_processors import ProcessorPromises
from tests.conformance.promises_sampling import SamplingPromises

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from protocols.engine import Engine


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers, 128 positions, words of bytes; weights wide enough for sampled tokens to differ."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    path = tmp_path_factory.mktemp("tiny-llama")
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        initializer_range=0.2,
        eos_token_id=END_ID,
    )
    LlamaForCausalLM(config).save_pretrained(path)
    write_byte_tokenizer(path)
    return path


class Forcing:
    """Leaves one token. Keyword only, so that wrong options are found."""

    def __init__(self, *, token: int) -> None:
        self._token = token

    def __call__(self, input_ids: Any, logits: Any) -> None:
        kept = float(logits[self._token])
        logits.fill_(float("-inf"))
        logits[self._token] = kept


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
