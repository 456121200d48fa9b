"""Traps of two engines that share a request: how a prefill ends, what a transfer loses, older releases."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
import pytest

from protocols.errors import EngineStartError
from protocols.spec import GenerationSpec, Stage, StopRules
from protocols.steps import Delta, EngineId, FinishReason
from tests.actors.engines.trtllm.trap_world import PLAIN, config_of, ids, open_trapped
from tests.doubles.trtllm_llms import write_folder

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conformance.reader import EngineReader

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60), pytest.mark.usefixtures("double")]

TRANSCEIVER: dict[str, Any] = {"backend": "UCX", "kv_transfer_timeout_ms": 60_000}
PATIENCE_S = 15.0
FAILED = "the engine failed on this request (RequestError)"
ASKED = GenerationSpec(prompt=PLAIN, stop=StopRules(max_tokens=6))

_numbers = count(1)


@dataclass
class Pair:
    """Engines of both kinds which share the folder of hand-offs."""

    folder: Path
    environ: dict[str, str]
    decode: EngineReader

    def open_prefill(self, **script: Any) -> Any:
        """One more that computes prompts."""
        config = config_of(self.folder, {"role": Stage.PREFILL}, cache_transceiver_config=TRANSCEIVER)
        return open_trapped(config, script, self.environ)


@pytest.fixture(scope="module")
async def pair(
    anyio_backend: object, double: None, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Pair]:
    """One that answers, for all."""
    folder = write_folder(tmp_path_factory.mktemp("model"))
    environ = {"DOUBLE_TRANSFERS": str(tmp_path_factory.mktemp("handed"))}
    config = config_of(folder, {"role": Stage.DECODE}, cache_transceiver_config=TRANSCEIVER)
    async with open_trapped(config, {}, environ) as decode:
        yield Pair(folder, environ, decode)


async def answer(reader: EngineReader, spec: GenerationSpec) -> list[Delta]:
    """Everything that is said of one request, which is alone."""
    engine_id = EngineId(10**6 + next(_numbers))
    reader.engine.submit(engine_id, spec)
    deltas: list[Delta] = []
    with anyio.fail_after(PATIENCE_S):
        while not (deltas and deltas[-1].is_last):
            deltas += (await reader.engine.next_step()).deltas
    assert {delta.engine_id for delta in deltas} == {engine_id}
    return deltas


def tokens(deltas: list[Delta]) -> list[int]:
    return [token for delta in deltas for token in delta.token_ids]


async def hand_over(reader: EngineReader) -> Any:
    """A prompt is computed; what a decode worker is to be given."""
    deltas = await answer(reader, msgspec.structs.replace(ASKED, stage=Stage.PREFILL))
    assert deltas[-1].handoff is not None
    return deltas[-1].handoff


async def decoded(pair: Pair, handoff: Any) -> list[Delta]:
    """The answer of the other engine, whose preparer reads the hand-off first."""
    spec = msgspec.structs.replace(ASKED, stage=Stage.DECODE, handoff=handoff)
    preparer = pair.decode.engine.preparer
    assert preparer is not None
    return await answer(pair.decode, await preparer.prepare(spec))


@pytest.mark.parametrize("word", [None, "length", "stop", "not_finished"])
async def test_a_prefill_ends_by_its_length_whatever_the_engine_says(pair: Pair, word: str | None) -> None:
    """One token, the hand-off, and never "stop": a frontend would take it for the whole answer."""
    async with pair.open_prefill(context_finish=word) as prefill:
        deltas = await answer(prefill, msgspec.structs.replace(ASKED, stage=Stage.PREFILL))
        last = deltas[-1]
        assert tokens(deltas) == ids(1)
        assert (last.finish_reason, last.stop_reason, last.error) == (FinishReason.LENGTH, None, None)
        assert last.handoff is not None
        answered = await decoded(pair, last.handoff)
    assert (tokens(answered), answered[-1].finish_reason) == (ids(6), FinishReason.LENGTH)


async def test_a_cache_is_fetched_once(pair: Pair) -> None:
    """The second request with it fails alone, and the next hand-off is served."""
    async with pair.open_prefill() as prefill:
        handoff = await hand_over(prefill)
        assert tokens(await decoded(pair, handoff)) == ids(6)
        assert (await decoded(pair, handoff))[-1].error == FAILED
        assert tokens(await decoded(pair, await hand_over(prefill))) == ids(6)


async def test_a_transfer_that_fails_is_one_requests(pair: Pair) -> None:
    """The prefill has answered already: it lives on, and so does the engine that could not fetch."""
    config = config_of(pair.folder, {"role": Stage.DECODE}, cache_transceiver_config=TRANSCEIVER)
    async with AsyncExitStack() as engines:
        prefill = await engines.enter_async_context(pair.open_prefill())
        script = {"transfer_error": "Disaggregated KV cache transfer failed"}
        failing = await engines.enter_async_context(open_trapped(config, script, pair.environ))
        broken = Pair(pair.folder, pair.environ, failing)
        for _ in range(2):
            deltas = await decoded(broken, await hand_over(prefill))
            assert (tokens(deltas), deltas[-1].error) == ([], FAILED)
        # A whole request needs no transfer.
        assert tokens(await answer(failing, ASKED)) == ids(6)


async def test_a_worker_with_a_part_serves_whole_requests(pair: Pair) -> None:
    """Canaries, and what comes with nothing handed over: in its own words, with no hand-off."""
    async with pair.open_prefill() as prefill:
        for reader in (prefill, pair.decode):
            deltas = await answer(reader, ASKED)
            assert (tokens(deltas), deltas[-1].handoff) == (ids(6), None)


async def test_an_engine_without_a_transceiver_hands_nothing_over(pair: Pair) -> None:
    """The library finds out late; the request fails by itself, and never ends as an answer of one token."""
    async with open_trapped(config_of(pair.folder, {"role": Stage.PREFILL}), {}, pair.environ) as prefill:
        deltas = await answer(prefill, msgspec.structs.replace(ASKED, stage=Stage.PREFILL))
        assert deltas[-1].error == FAILED
        assert deltas[-1].handoff is None


async def test_ids_of_older_releases(pair: Pair) -> None:
    """They were made of one number."""
    async with pair.open_prefill(has_machine_ids=True) as prefill:
        assert tokens(await decoded(pair, await hand_over(prefill))) == ids(6)


async def test_conversations_need_a_release_that_knows_them(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the option an older one serves as any other."""
    script = {"lacks": ["ConversationParams"]}
    async with open_trapped(config_of(pair.folder), script) as reader:
        assert tokens(await answer(reader, ASKED)) == ids(6)
    monkeypatch.delattr("tensorrt_llm.llmapi.ConversationParams")
    affinity: dict[str, Any] = {"attention_dp_config": {"kv_cache_routing_conversation_affinity": True}}
    with pytest.raises(EngineStartError, match="knows no conversations"):
        async with open_trapped(config_of(pair.folder, **affinity), script):
            raise AssertionError("it started")
