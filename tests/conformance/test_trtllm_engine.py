"""The driver of TensorRT-LLM keeps the promises of all engines, with its double.

One engine with a tiny model serves most of them: it takes seconds to start. Those about a life of its own
get a new one each, whose made-up ids need no model.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from actors.engines.trtllm import TrtllmConfig, TrtllmEngine
from protocols.spec import Guided, GuidedKind, ProcessorEntry
from tests.conformance.byte_tokenizer import VOCAB_SIZE
from tests.conformance.check_engine import EngineConformance, open_reader
from tests.conformance.forcing import Forcing
from tests.conformance.promises_guided import GuidedPromises
from tests.conformance.promises_logprobs import LogprobPromises
from tests.conformance.promises_no_pause import NoPausePromises
from tests.conformance.promises_processors import ProcessorPromises
from tests.conformance.promises_progress import wait_until_at_rest
from tests.conformance.promises_sampling import SamplingPromises
from tests.conformance.reader import EngineReader, make_spec
from tests.conformance.tiny_llama import CONTEXT, write_tiny_llama
from tests.doubles.trtllm_site import SCRIPT, double_on_path
from tests.e2e import word_model
from tests.e2e.word_model import write_word_model

if TYPE_CHECKING:
    from pathlib import Path

    from protocols.engine import Engine


@pytest.fixture(scope="module", autouse=True)
def double() -> Iterator[None]:
    """On the path of this process and of the engines' own."""
    with double_on_path(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOUBLE_STEP_MS", "2")
        # As upstream's PyTorch backend does.
        patch.setenv(SCRIPT, json.dumps({"has_length_first": True}))
        patch.setenv("TLLM_ALLOW_N_GREEDY_DECODING", "1")
        yield


def engine_of(folder: Path, vocab_size: int) -> TrtllmEngine:
    """Four sequences, and everything that can be asked for."""
    arguments: dict[str, Any] = {
        "max_batch_size": 4,
        "max_num_tokens": 64,
        "enable_chunked_prefill": True,
        # Constraints are followed by the text of tokens.
        "skip_tokenizer_init": False,
        "guided_decoding_backend": "llguidance",
        "enable_iter_perf_stats": True,
        "kv_cache_config": {"tokens_per_block": 16, "event_buffer_max_size": 1000},
    }
    config = TrtllmConfig(
        model_path=folder,
        vocab_size=vocab_size,
        context_length=CONTEXT,
        arguments=arguments,
        allows_greedy_choices=True,
        processors={"forcing": Forcing},
        publishes_kv_events=True,
    )
    return TrtllmEngine(config)


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """One loop for all, since an engine's answers belong to the loop that it began in."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="module")
async def shared(
    anyio_backend: object, double: None, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[EngineReader]:
    """Started once."""
    folder = write_tiny_llama(tmp_path_factory.mktemp("tiny-llama"))
    async with open_reader(engine_of(folder, VOCAB_SIZE)) as reader:
        yield reader


@pytest.mark.timeout(120)  # the engine's process imports torch and transformers, for one of these tests
class TestTrtllmEngine(
    EngineConformance, NoPausePromises, SamplingPromises, LogprobPromises, GuidedPromises, ProcessorPromises
):
    # The module's, and not that of the kit, which is another for each test.
    anyio_backend = None  # type: ignore[assignment]

    @pytest.fixture
    async def reader(self, shared: EngineReader) -> AsyncIterator[EngineReader]:
        """The shared one, with nothing in it before and after."""
        yield shared
        for heard in shared.live:
            shared.engine.abort(heard.engine_id)
        await shared.read_to_end(*shared.live)

    @pytest.fixture
    def make_engine(self, tmp_path: Path) -> Callable[[], Engine]:
        """For a life of its own."""
        folder = write_word_model(tmp_path)
        return lambda: engine_of(folder, word_model.VOCAB_SIZE)

    @pytest.fixture
    def constraint(self) -> Guided:
        """Some letters, and an end."""
        return Guided(kind=GuidedKind.REGEX, constraint="[a-e]{3,6}!")

    @pytest.fixture
    def forcing(self) -> ProcessorEntry:
        return ProcessorEntry(name="forcing", options={"token": self.FORCED})

    async def test_progress_can_be_read_at_any_time(self, make_engine: Callable[[], Engine]) -> None:  # type: ignore[override]
        """Also after the stop, which ends an engine: not the shared one."""
        async with open_reader(make_engine()) as reader:
            await reader.complete(make_spec())
            await reader.engine.stop()
            await wait_until_at_rest(reader.engine)
