"""The engine as a whole: seeds, failures that stay where they are, memory, start and stop."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch

from actors.engines.torch import TorchConfig, TorchEngine
from actors.engines.torch.kv_cache import KvCache
from actors.engines.torch.runner import ModelRunner
from actors.engines.torch.sampler import Sampler
from protocols.errors import EngineDead, EngineStartError, InternalError, StartStopped
from protocols.spec import GenerationSpec, Sampling, StopRules
from protocols.steps import FinishReason
from tests.actors.engines.torch import tiny_models

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.actors.engines.torch.conftest import Opener

pytestmark = pytest.mark.anyio

PROMPT = tiny_models.prompts((23,))[0]


def sampled(prompt: tuple[int, ...] = PROMPT, tokens: int = 30, **options: Any) -> GenerationSpec:
    sampling = Sampling(**{"temperature": 1.0, "seed": 5, **options})
    return GenerationSpec(prompt=prompt, stop=StopRules(max_tokens=tokens), sampling=sampling)


# What is drawn from, and what changes the logits before.
DRAWS: list[dict[str, Any]] = [
    {},
    {"top_p": 0.9},
    {"top_k": 40, "top_p": 0.95},
    {"min_p": 0.05, "repetition_penalty": 1.3},
    {"repetition_penalty": 1.3, "frequency_penalty": 0.4, "presence_penalty": 0.3, "min_p": 0.02},
]


@pytest.mark.parametrize("options", DRAWS, ids=str)
async def test_a_seed_gives_the_same_tokens_in_any_company(
    options: dict[str, Any], open_engine: Opener
) -> None:
    """Alone, in a batch of 16, cut into chunks and after preemption a seeded request says the same."""
    async with open_engine(max_num_seqs=16) as reader:
        alone = await reader.complete(sampled(**options))
        many = tiny_models.prompts(tuple(range(3, 48, 3)))
        others = [reader.submit(sampled(prompt, seed=9)) for prompt in many]
        among = reader.submit(sampled(**options))
        await reader.read_to_end(among, *others)
        assert reader.most_running == 16
        different = await reader.complete(sampled(seed=6, **options))
    async with open_engine(step_tokens=9, kv_pool_tokens=104, max_seq_len=72) as reader:
        others = [reader.submit(sampled(prompt, seed=9)) for prompt in tiny_models.prompts()]
        preempted = reader.submit(sampled(**options))
        await reader.read_to_end(preempted, *others)
        assert reader.preempted[preempted.engine_id] > 0
    assert among.tokens == preempted.tokens == alone.tokens != different.tokens


@pytest.mark.parametrize("options", [draw for draw in DRAWS if "frequency_penalty" not in draw], ids=str)
async def test_a_migrated_request_goes_on_with_the_same_tokens(
    options: dict[str, Any], open_engine: Opener
) -> None:
    """A request that continues elsewhere from prompt plus output draws what it would have drawn.

    Penalties that count the output alone are the exception: elsewhere it is a part of the prompt.
    """
    async with open_engine() as reader:
        whole = await reader.complete(sampled(**options))
    async with open_engine() as elsewhere:
        for moved in (1, 11, 29):
            prompt = PROMPT + tuple(whole.tokens[:moved])
            rest = await elsewhere.complete(sampled(prompt, tokens=30 - moved, **options))
            assert whole.tokens[moved:] == rest.tokens


async def test_nothing_is_left_behind(open_engine: Opener) -> None:
    """After requests have ended in every way all blocks are free."""
    async with open_engine(kv_pool_tokens=96, max_seq_len=96) as reader:
        heard = [reader.submit(sampled(prompt)) for prompt in tiny_models.prompts()]
        for _ in range(6):
            await reader.read_step()
        reader.engine.abort(heard[0].engine_id)
        reader.engine.pause(heard[1].engine_id)
        reader.engine.abort(heard[1].engine_id)
        used = 1
        while reader.live:
            used = (await reader.read_step()).used_blocks
    assert used == 0


async def test_a_row_that_is_not_finite_fails_alone(
    open_engine: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NaN logits end their own request with an error; its neighbours and the next request go on."""
    choose = Sampler.choose
    poison = sampled(seed=66)

    def poisoned(self: Sampler, logits: torch.Tensor, sequences: list[Any]) -> list[int | None]:
        for row, sequence in enumerate(sequences):
            if sequence.spec.sampling.seed == 66 and sequence.output_tokens == 4:
                logits[row] = float("nan")
        return choose(self, logits, sequences)

    async with open_engine() as reader:
        alone = await reader.complete(sampled())
        monkeypatch.setattr(Sampler, "choose", poisoned)
        bad, good = reader.submit(poison), reader.submit(sampled())
        await reader.read_until(lambda: bad.is_ended)
        await reader.read_to_end(good)
        after = await reader.complete(sampled())
    assert bad.error == "the model gave logits that are not finite"
    assert len(bad.tokens) == 4
    assert good.tokens == after.tokens == alone.tokens


async def test_a_poisoned_cache_is_clean_for_the_next(
    open_engine: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NaN that a failed request left in its blocks never reaches those that get them next."""
    write = KvCache.write

    def poisoned(
        self: KvCache, layer: int, key: torch.Tensor, value: torch.Tensor, slots: torch.Tensor
    ) -> None:
        write(self, layer, key * float("nan"), value * float("nan"), slots)

    async with open_engine(kv_pool_tokens=96, max_seq_len=96) as reader:
        requests = [sampled(), sampled(PROMPT[:5])]
        alone = [await reader.complete(request) for request in requests]
        with monkeypatch.context() as patched:
            patched.setattr(KvCache, "write", poisoned)
            bad = [reader.submit(sampled()) for _ in range(3)]
            await reader.read_until(lambda: all(heard.is_ended for heard in bad))
        after = [reader.submit(request) for request in requests]
        await reader.read_to_end(*after)
    assert {heard.error for heard in bad} == {"the model gave logits that are not finite"}
    assert [heard.tokens for heard in after] == [heard.tokens for heard in alone]


async def test_an_exception_in_a_step_is_the_end(
    open_engine: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be blamed on one request kills the engine, with its cause."""

    def broken(*_: object) -> None:
        raise RuntimeError("out of everything")

    async with open_engine() as reader:
        monkeypatch.setattr(ModelRunner, "run", broken)
        reader.submit(sampled())
        with pytest.raises(EngineDead) as dead:
            await reader.read_step()
    assert str(dead.value.__cause__) == "out of everything"


@pytest.mark.parametrize(
    "stage", ["importing", "checking", "weights", "reference", "packing", "self-test", "kv cache", "ready"]
)
async def test_a_stop_between_stages_ends_the_start(stage: str, model_folder: Callable[[str], Path]) -> None:
    """A stop during any stage ends the start at the next one, and the thread with it."""
    reached, stopped = threading.Event(), threading.Event()

    def hold(now: str, _: float) -> None:
        if now == stage:
            reached.set()
            stopped.wait()

    engine = TorchEngine(TorchConfig(model_path=model_folder("llama"), threads=1), progress=hold)
    starting = asyncio.ensure_future(engine.start())
    await asyncio.to_thread(reached.wait)
    stopping = asyncio.ensure_future(engine.stop())
    await asyncio.sleep(0)
    stopped.set()
    await stopping
    if stage == "ready":
        assert (await starting).context_length
    else:
        with pytest.raises(StartStopped):
            await starting
    assert not [thread for thread in threading.enumerate() if thread.name == "torch-engine"]


async def test_progress_is_told_in_order(model_folder: Callable[[str], Path]) -> None:
    """Stages come with fractions that rise from 0 to 1."""
    told: list[tuple[str, float]] = []
    engine = TorchEngine(
        TorchConfig(model_path=model_folder("llama"), threads=1), progress=lambda *word: told.append(word)
    )
    await engine.start()
    await engine.stop()
    fractions = [fraction for _, fraction in told]
    assert fractions == sorted(fractions)
    assert (told[0], told[-1]) == (("importing", 0.0), ("ready", 1.0))


async def test_it_says_what_it_is(open_engine: Opener) -> None:
    """The sizes are those of the model, the configuration and the cache."""
    async with open_engine("qwen2", max_seq_len=128, kv_pool_tokens=256) as reader:
        info = reader.info
    assert (info.context_length, info.vocab_size, info.max_num_seqs) == (128, tiny_models.VOCAB_SIZE, 8)
    assert (info.block_tokens, info.total_blocks, info.bos_token_id) == (8, 32, 1)
    assert info.description == "cpu float32, 1 thread, 256 KV tokens in 32 blocks of 8, packed linears"


@pytest.mark.parametrize("kind", ["llama", "gemma2", "gpt_oss"])
async def test_bfloat16(kind: str, open_engine: Opener) -> None:
    """Half the memory: the self-test passes, and requests get their tokens; modules stay as they are."""
    async with open_engine(kind, dtype="bfloat16") as reader:
        heard = [reader.submit(sampled(prompt, tokens=5)) for prompt in tiny_models.prompts()]
        await reader.read_to_end(*heard)
    assert "cpu bfloat16" in reader.info.description
    assert "plain linears" in reader.info.description


async def test_a_second_start_is_a_bug(open_engine: Opener) -> None:
    """An engine starts once."""
    async with open_engine() as reader:
        with pytest.raises(InternalError):
            await reader.engine.start()


async def test_whatever_goes_wrong_in_loading_is_a_start_error(
    model_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unexpected exception of a library becomes one error with its type and text."""

    def broken(*_: object) -> None:
        raise KeyError("rope")

    monkeypatch.setattr("actors.engines.torch.selftest.reference", broken)
    engine = TorchEngine(TorchConfig(model_path=model_folder("llama"), threads=1))
    with pytest.raises(EngineStartError, match="KeyError: 'rope'"):
        await engine.start()
    await engine.stop()


async def test_stop_reasons_reach_the_delta(open_engine: Opener) -> None:
    """A stop id that is also the last allowed token is the reason, and is delivered."""
    async with open_engine() as reader:
        free = await reader.complete(sampled(tokens=6))
        rules = StopRules(max_tokens=6, stop_token_ids=frozenset({free.tokens[-1]}))
        heard = await reader.complete(
            GenerationSpec(prompt=PROMPT, stop=rules, sampling=Sampling(temperature=1.0, seed=5))
        )
    assert heard.tokens == free.tokens[: free.tokens.index(free.tokens[-1]) + 1]
    assert heard.reason is FinishReason.STOP
