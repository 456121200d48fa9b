"""n > 1: choices share what they have in common, differ in the rest, and end as one request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from actors.engines.torch.runner import ModelRunner
from actors.engines.torch.sampler import Sampler
from protocols.spec import GenerationSpec, Output, Sampling, StopRules
from protocols.steps import FinishReason
from tests.actors.engines.torch import tiny_models
from tests.actors.engines.torch.bookkeeping import BLOCK, Bench

if TYPE_CHECKING:
    import torch

    from actors.engines.torch.scheduler import Chunk
    from tests.actors.engines.torch.conftest import Opener

pytestmark = pytest.mark.anyio

(PROMPT,) = tiny_models.prompts((45,))


def ask(n: int, prompt: tuple[int, ...] = PROMPT, tokens: int = 12, **options: Any) -> GenerationSpec:
    stop = StopRules(max_tokens=tokens, **options.pop("stop", {}))
    sampling = Sampling(temperature=1.0, seed=5)
    return GenerationSpec(**{"prompt": prompt, "stop": stop, "sampling": sampling, "n": n, **options})


@pytest.fixture
def rows_computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of each forward pass."""
    rows: list[int] = []
    run = ModelRunner.run

    def watched(self: ModelRunner, chunks: list[Chunk]) -> Any:
        rows.append(sum(chunk.rows for chunk in chunks))
        return run(self, chunks)

    monkeypatch.setattr(ModelRunner, "run", watched)
    return rows


async def test_the_prompt_is_computed_and_kept_once(open_engine: Opener, rows_computed: list[int]) -> None:
    """Four choices: one computes the prompt, the others its unfinished block; full blocks exist once."""
    used: list[int] = []
    async with open_engine() as reader:
        heard = reader.submit(ask(4, tokens=3))
        while not heard.is_ended:
            used.append((await reader.read_step()).used_blocks)
    # Of 45 tokens 40 are in full blocks of 8. After that each choice computes its first two tokens.
    assert rows_computed[0] == 45
    assert sum(rows_computed) == 45 + 3 * 5 + 4 * 2
    # 5 shared blocks, and the sixth of each choice; the second step is the first with all of them.
    assert used[1] == 5 + 4
    assert heard.deltas == 12
    assert heard.cached_tokens == 0


async def test_cached_tokens_are_counted_once(open_engine: Opener) -> None:
    """What the prompt of n choices found in the cache is said once; what they share is not counted."""
    async with open_engine() as reader:
        for cached in (0, 40):
            assert (await reader.complete(ask(3))).cached_tokens == cached


async def test_choices_are_their_own_whoever_is_beside_them(open_engine: Opener) -> None:
    """Each choice draws its own noise: the first is the answer of n = 1, and more choices change none."""
    async with open_engine() as reader:
        one = await reader.complete(ask(1, cache_salt="one"))
        two = await reader.complete(ask(2, cache_salt="two"))
        six = await reader.complete(ask(6, cache_salt="six"))
    assert two.token_ids[0] == one.tokens
    assert six.token_ids[:2] == two.token_ids
    assert len({tuple(tokens) for tokens in six.token_ids}) == 6


async def test_greedy_choices_are_equal(open_engine: Opener) -> None:
    """Without noise every choice is the answer of n = 1, with a sampled first step or not."""
    async with open_engine() as reader:
        one = await reader.complete(ask(1, sampling=Sampling()))
        four = await reader.complete(ask(4, sampling=Sampling()))
    assert four.token_ids == [one.tokens] * 4


async def test_each_choice_ends_for_its_own_reason(open_engine: Opener) -> None:
    """Stop id, end of sequence and length in one request: a reason each, and the last delta is the last."""
    async with open_engine() as reader:
        free = await reader.complete(ask(3))
        stop_id, eos_id = free.token_ids[0][2], free.token_ids[1][5]
        stop = {"stop_token_ids": frozenset({stop_id}), "eos_token_ids": frozenset({eos_id})}
        heard = await reader.complete(ask(3, stop=stop))
    ends = [cut(tokens, {stop_id, eos_id}) for tokens in free.token_ids]
    assert heard.token_ids == ends
    said = heard.reasons
    assert said == {index: reason_of(tokens, stop_id, eos_id) for index, tokens in enumerate(ends)}
    assert set(said.values()) == {FinishReason.STOP, FinishReason.EOS, FinishReason.LENGTH}
    assert heard.stop_reasons == {i: stop_id for i, reason in said.items() if reason is FinishReason.STOP}


def cut(tokens: list[int], stop_ids: set[int]) -> list[int]:
    ends = [place for place, token in enumerate(tokens) if token in stop_ids]
    return tokens[: ends[0] + 1] if ends else tokens


def reason_of(tokens: list[int], stop_id: int, eos_id: int) -> FinishReason:
    reasons = {stop_id: FinishReason.STOP, eos_id: FinishReason.EOS}
    return reasons.get(tokens[-1], FinishReason.LENGTH)


@pytest.mark.parametrize("prompt", [(9,), PROMPT[:7], PROMPT[:8], PROMPT[:64], PROMPT])
async def test_one_token_each(prompt: tuple[int, ...], open_engine: Opener) -> None:
    """With max_tokens 1 the first choice ends before the others begin; prompts may be of any length."""
    async with open_engine() as reader:
        more = await reader.complete(ask(8, prompt, tokens=4, cache_salt="more"))
        heard = await reader.complete(ask(8, prompt, tokens=1))
        blocks = [(await reader.complete(ask(1))).reason, (await read_idle(reader))]
    assert heard.token_ids == [tokens[:1] for tokens in more.token_ids]
    assert heard.reasons == dict.fromkeys(range(8), FinishReason.LENGTH)
    assert blocks == [FinishReason.LENGTH, 0]


async def read_idle(reader: Any) -> int:
    """Blocks in use when one more small request has ended."""
    heard = reader.submit(ask(1, (3,), tokens=1))
    used = -1
    while not heard.is_ended:
        used = (await reader.read_step()).used_blocks
    return used


@pytest.mark.parametrize("pool", [72, 96, 128])
async def test_a_pool_too_small_for_all_choices(pool: int, open_engine: Opener) -> None:
    """Down to a pool of one context, choices wait and give way, and say what they say with room for all."""
    async with open_engine() as reader:
        roomy = await reader.complete(ask(8, tokens=27))
    async with open_engine(kv_pool_tokens=pool, max_seq_len=72) as reader:
        tight = await reader.complete(ask(8, tokens=27))
        assert await read_idle(reader) == 0
    assert tight.token_ids == roomy.token_ids


async def test_an_abort_ends_only_what_is_open(open_engine: Opener) -> None:
    """After one choice has stopped an abort ends the others, keeps its reason, and frees everything."""
    async with open_engine() as reader:
        free = await reader.complete(ask(3, tokens=40))
        stop = {"stop_token_ids": frozenset({free.token_ids[1][3]})}
        heard = reader.submit(ask(3, tokens=40, stop=stop))
        await reader.read_until(lambda: 1 in heard.reasons)
        reader.engine.abort(heard.engine_id)
        await reader.read_until(lambda: heard.is_ended)
        assert await read_idle(reader) == 0
    assert heard.error is None
    assert heard.reasons[1] is FinishReason.STOP
    assert heard.last_reason is FinishReason.CANCELLED


async def test_a_pause_holds_all_choices(open_engine: Opener) -> None:
    """A held request says nothing in any choice while others go on, and continues as if nothing had been."""
    async with open_engine(kv_pool_tokens=128, max_seq_len=96) as reader:
        free = await reader.complete(ask(3, cache_salt="free"))
        heard = reader.submit(ask(3))
        await reader.read_until(lambda: all(heard.token_ids))
        reader.engine.pause(heard.engine_id)
        other = reader.submit(ask(1, PROMPT[::-1], tokens=40))
        await reader.read_until(lambda: len(other.tokens) > 5)
        said = [len(tokens) for tokens in heard.token_ids]
        await reader.read_until(lambda: other.is_ended)
        assert [len(tokens) for tokens in heard.token_ids] == said
        reader.engine.resume(heard.engine_id)
        await reader.read_to_end(heard)
    assert heard.token_ids == free.token_ids


async def test_one_choice_that_fails_fails_the_request_once(
    open_engine: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One error for the request, its siblings are freed, a neighbour goes on, and the next one is fine."""
    choose = Sampler.choose
    bad_seed = 77

    def poisoned(self: Sampler, logits: torch.Tensor, sequences: list[Any]) -> list[int | None]:
        for row, sequence in enumerate(sequences):
            if (
                sequence.spec.sampling.seed == bad_seed
                and sequence.index == 1
                and sequence.output_tokens == 3
            ):
                logits[row] = float("nan")
        return choose(self, logits, sequences)

    async with open_engine() as reader:
        alone = await reader.complete(ask(2))
        monkeypatch.setattr(Sampler, "choose", poisoned)
        bad = reader.submit(ask(4, sampling=Sampling(temperature=1.0, seed=bad_seed)))
        good = reader.submit(ask(2))
        await reader.read_until(lambda: bad.is_ended)
        await reader.read_to_end(good)
        assert await read_idle(reader) == 0
    assert bad.error == "the model gave logits that are not finite"
    assert len(bad.token_ids[1]) == 3
    assert good.token_ids == alone.token_ids


async def test_prompt_logprobs_and_choices(open_engine: Opener, rows_computed: list[int]) -> None:
    """Who wants the prompt's logprobs computes it whole though it is known; its other choices may read it."""
    output = Output(prompt_logprobs=1)
    async with open_engine() as reader:
        plain = await reader.complete(ask(3, tokens=2))
        rows_computed.clear()
        heard = await reader.complete(ask(3, tokens=2, output=output))
    assert heard.cached_tokens == 0
    assert sum(rows_computed) == 45 + 2 * 5 + 3
    assert heard.token_ids == plain.token_ids


def test_choices_wait_for_the_first_and_share_its_blocks() -> None:
    """Until the prompt is known one choice runs; then all have the same full blocks and one of their own."""
    bench = Bench(slots=4, step=9, blocks=16)
    request = bench.add(tuple(range(4 * BLOCK + 1)), 5, n=4)
    for _ in range(2):
        (chunk,) = bench.step()
        assert chunk.sequence.index == 0
    bench.step()
    tables = [sequence.blocks for sequence in request.sequences]
    assert len({tuple(blocks[:4]) for blocks in tables}) == 1
    assert len({blocks[4] for blocks in tables}) == 4
    assert bench.pool.used_blocks == 8
    bench.run_to_end()
