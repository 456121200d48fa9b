"""Traps of sampling, with real tokens: answers ranked anew or rewritten until they end, intervals."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from actors.engines.trtllm import TrtllmConfig
from protocols.spec import GenerationSpec, Output, Sampling, Search, StopRules
from protocols.steps import FinishReason
from tests.actors.engines.trtllm.report_world import arrived
from tests.actors.engines.trtllm.trap_world import open_trapped, outcome
from tests.conformance.byte_tokenizer import VOCAB_SIZE
from tests.conformance.reader import EngineReader
from tests.conformance.tiny_llama import CONTEXT, write_tiny_llama

if TYPE_CHECKING:
    from pathlib import Path

# The engine's process imports torch and transformers.
pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120), pytest.mark.usefixtures("double")]

MOST = 12
WARM = Sampling(temperature=1.0, seed=3)
GREEDY = GenerationSpec(prompt=(5, 6, 7), stop=StopRules(max_tokens=MOST))
# More than a block of the cache.
LONG = tuple(range(20, 80))
DRAWN = msgspec.structs.replace(GREEDY, sampling=WARM)


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the engine's process writes down what arrives."""
    return tmp_path_factory.mktemp("journal") / "requests.jsonl"


@pytest.fixture(scope="module")
async def reader(
    anyio_backend: object, double: None, journal: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[EngineReader]:
    """Beams, a response every five tokens, and several greedy choices allowed."""
    arguments: dict[str, Any] = {
        "max_batch_size": 8,
        "max_num_tokens": 64,
        "max_beam_width": 4,
        "stream_interval": 5,
        "skip_tokenizer_init": True,
    }
    config = TrtllmConfig(
        model_path=write_tiny_llama(tmp_path_factory.mktemp("tiny-llama")),
        vocab_size=VOCAB_SIZE,
        context_length=CONTEXT,
        arguments=arguments,
        allows_greedy_choices=True,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TLLM_ALLOW_N_GREEDY_DECODING", "1")
        async with open_trapped(config, {"journal": str(journal)}) as opened:
            yield opened


async def test_an_interval_delays_tokens_and_loses_none(reader: EngineReader) -> None:
    """Twelve come in three responses; the last has what is left, and the reason."""
    heard = await reader.complete(DRAWN)
    assert len(heard.tokens) == MOST
    assert heard.deltas <= 4
    assert (await reader.complete(DRAWN)).tokens == heard.tokens


async def test_the_best_of_more_are_told_at_their_end(reader: EngineReader) -> None:
    """They are sorted anew at every look: what is told of each is told once, and whole."""
    spec = msgspec.structs.replace(DRAWN, n=2, search=Search(width=4), output=Output(logprobs=0))
    heard = await reader.complete(spec)
    assert heard.reasons == {0: FinishReason.LENGTH, 1: FinishReason.LENGTH}
    assert [len(tokens) for tokens in heard.token_ids] == [MOST, MOST]
    likelihoods = [sum(position[0].logprob for position in positions) for positions in heard.positions]
    assert likelihoods == sorted(likelihoods, reverse=True)


async def test_the_best_of_more_are_the_best_for_those_who_ask_for_no_logprobs(reader: EngineReader) -> None:
    """The library knows the best only where it was asked for some; who was not told of any is not either."""
    spec = msgspec.structs.replace(DRAWN, n=2, search=Search(width=4))
    told = await reader.complete(msgspec.structs.replace(spec, output=Output(logprobs=0)))
    heard = await reader.complete(spec)
    assert heard.token_ids == told.token_ids
    assert heard.positions == [[], []]


async def test_beams_are_told_at_their_end(reader: EngineReader, journal: Path) -> None:
    """All their ids may be others with every response; the engine is asked for a whole answer."""
    spec = msgspec.structs.replace(GREEDY, n=2, search=Search(width=3, is_beam=True))
    heard = await reader.complete(spec)
    assert [len(tokens) for tokens in heard.token_ids] == [MOST, MOST]
    request = arrived(journal)[-1]
    assert request["sampling_params"]["use_beam_search"] is True
    assert (request["sampling_params"]["best_of"], request["sampling_params"]["n"]) == (3, 2)
    assert request["streaming"] is False


async def test_a_search_that_is_aborted_ends_without_a_half(reader: EngineReader) -> None:
    """Nothing was known of it yet, and nothing is told."""
    stop = StopRules(max_tokens=CONTEXT - 8)
    spec = msgspec.structs.replace(DRAWN, n=2, search=Search(width=4), stop=stop)
    heard = reader.submit(spec)
    reader.engine.abort(heard.engine_id)
    await reader.read_to_end(heard)
    assert heard.last_reason is FinishReason.CANCELLED


async def test_greedy_choices_where_they_are_allowed(reader: EngineReader) -> None:
    """All say the same."""
    heard = await reader.complete(msgspec.structs.replace(GREEDY, n=3))
    assert heard.token_ids[0] == heard.token_ids[1] == heard.token_ids[2]


async def test_every_request_has_options_of_its_own(reader: EngineReader, journal: Path) -> None:
    """The library writes into them: an id that ends one answer ends no other."""
    before = len(arrived(journal))
    stop = StopRules(max_tokens=4, stop_token_ids=frozenset({300, 301}))
    await reader.complete(msgspec.structs.replace(DRAWN, stop=stop))
    await reader.complete(DRAWN)
    first, second = (each["sampling_params"] for each in arrived(journal)[before:])
    assert (first["stop_token_ids"], second["stop_token_ids"]) == ([300, 301], None)
    for each in (first, second):
        assert (each["detokenize"], each["ignore_eos"]) == (False, False)


@pytest.mark.parametrize("asked", [0, 1, 4])
async def test_log_probabilities_of_the_prompt_and_of_the_answer(reader: EngineReader, asked: int) -> None:
    """The token that stands there is always among them, whatever its rank; nothing is told of the first."""
    output = Output(logprobs=asked, prompt_logprobs=asked)
    heard = await reader.complete(msgspec.structs.replace(DRAWN, output=output))
    assert [position[0].token_id for position in heard.positions[0]] == heard.tokens
    assert all(asked <= len(position) <= asked + 1 for position in heard.positions[0])
    first, *others = heard.prompt_positions
    assert first is None
    assert [position[0].token_id for position in others if position] == [6, 7]


async def test_log_probabilities_of_a_prompt_that_is_cached(reader: EngineReader) -> None:
    """They are the same, since all of it is computed again, whoever sent it before with the same salt."""
    plain = msgspec.structs.replace(DRAWN, prompt=LONG)
    asked = msgspec.structs.replace(plain, output=Output(prompt_logprobs=1))
    first = await reader.complete(asked)
    for salt in (None, "a tenant's"):
        await reader.complete(msgspec.structs.replace(plain, cache_salt=salt))
        again = await reader.complete(msgspec.structs.replace(asked, cache_salt=salt))
        assert again.prompt_positions == first.prompt_positions
        assert again.cached_tokens == 0


async def test_log_probabilities_of_a_prompt_that_was_reused_all_the_same(
    reader: EngineReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of the wrong ones is told: that request fails at once, and whoever came before it goes on."""
    monkeypatch.setattr("secrets.token_hex", lambda _: "one for all")
    stop = StopRules(max_tokens=CONTEXT - len(LONG))
    asked = msgspec.structs.replace(DRAWN, prompt=LONG, output=Output(prompt_logprobs=1))
    await reader.complete(asked)
    beside = reader.submit(msgspec.structs.replace(DRAWN, stop=stop))
    heard = reader.submit(msgspec.structs.replace(asked, stop=stop))
    await outcome(reader, heard)
    assert not beside.is_ended
    assert heard.error == "the engine tells logprobs of a part of the prompt only"
    assert (heard.tokens, heard.prompt_positions) == ([], [])
    await reader.read_to_end(beside)
    assert len(beside.tokens) == stop.max_tokens
