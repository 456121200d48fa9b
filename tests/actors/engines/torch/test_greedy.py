"""Greedy tokens are those of transformers' own generate, however the work is cut up."""

from __future__ import annotations

import random
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from protocols.spec import GenerationSpec, StopRules
from tests.actors.engines.torch import tiny_models

if TYPE_CHECKING:
    from tests.actors.engines.torch.conftest import Opener
    from tests.conformance.reader import Heard

pytestmark = pytest.mark.anyio

TOKENS = 24

# How the same requests are served.
WAYS: dict[str, dict[str, Any]] = {
    "whole prompts, one batch": {},
    "small chunks": {"step_tokens": 11},
    "few slots": {"max_num_seqs": 2},
    "preemption": {"kv_pool_tokens": 72, "max_seq_len": 72},
    "no chunking": {"step_tokens": 40, "is_chunked_prefill": False},
}


@pytest.fixture(scope="module")
def expected() -> dict[str, list[list[int]]]:
    """Answers of transformers per kind, filled as they are asked for."""
    return {}


def answers(kind: str, expected: dict[str, list[list[int]]]) -> list[list[int]]:
    if kind not in expected:
        model = tiny_models.make_model(kind)
        expected[kind] = [tiny_models.greedy(model, prompt, TOKENS) for prompt in tiny_models.prompts()]
    return expected[kind]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", tiny_models.RUNS)
async def test_equal_to_generate(
    kind: str, way: str, open_engine: Opener, expected: dict[str, list[list[int]]]
) -> None:
    """Mixed lengths, batched, chunked, preempted: token for token what generate says alone."""
    wanted = answers(kind, expected)
    assert len({token for answer in wanted for token in answer}) > 20, "the model only repeats itself"
    async with open_engine(kind, **WAYS[way]) as reader:
        heard = [
            reader.submit(GenerationSpec(prompt=prompt, stop=StopRules(max_tokens=TOKENS)))
            for prompt in tiny_models.prompts()
        ]
        await reader.read_to_end(*heard)
        assert bool(reader.preempted) == (way == "preemption")
    assert [request.tokens for request in heard] == wanted


# Where the reference's two best logits are closer than this, either may be right.
TIE = 1e-4
CACHES: dict[str, dict[str, Any]] = {
    "room for all": {"kv_pool_tokens": 2048},
    "preemption and eviction": {"kv_pool_tokens": 176, "max_seq_len": 160},
    "small chunks": {"kv_pool_tokens": 2048, "step_tokens": 13},
    "no chunking": {"kv_pool_tokens": 512, "step_tokens": 160, "is_chunked_prefill": False},
}


class Reference:
    """What transformers says with a tiny model, each prompt asked once."""

    def __init__(self, kind: str) -> None:
        self.model = tiny_models.make_model(kind)
        self._said: dict[tuple[int, ...], list[int]] = {}

    def says(self, prompt: tuple[int, ...]) -> list[int]:
        if prompt not in self._said:
            self._said[prompt] = tiny_models.greedy(self.model, prompt, TOKENS)
        return self._said[prompt]


reference = cache(Reference)


def conversation(wanted: Reference) -> list[tuple[int, ...]]:
    """Prompts that meet in the cache: equal ones, next turns of a chat, forks beside block and piece ends."""
    (trunk,) = tiny_models.prompts((100,))
    (other,) = tiny_models.prompts((37,))
    turn = (*trunk[:40], *wanted.says(trunk[:40]), 9, 8, 7)
    forks = [trunk[:length] + other[: 5 + length % 7] for length in (7, 8, 9, 40, 63, 64, 65, 88)]
    return [trunk[:40], trunk[:40], turn, (*turn, *other), trunk, *forks, trunk]


def assert_equal(model: Reference, prompt: tuple[int, ...], tokens: list[int]) -> None:
    """Token for token, unless the reference is undecided itself; then the rest is not comparable."""
    wanted = model.says(prompt)
    for place, (token, best) in enumerate(zip(tokens, wanted, strict=True)):
        if token != best:
            margin = tiny_models.margin(model.model, (*prompt, *wanted[:place]))
            print(f"undecided after {len(prompt)} + {place} tokens: {margin:.2g}")
            assert margin < TIE
            return


@pytest.mark.timeout(60)
@pytest.mark.parametrize("way", CACHES)
@pytest.mark.parametrize("kind", ["llama", "qwen3", "mistral"])
async def test_equal_to_generate_from_the_cache(kind: str, way: str, open_engine: Opener) -> None:
    """Hits of all kinds with up to four choices, in random order, held back at random: no difference."""
    model = reference(kind)
    prompts = conversation(model)
    chance = random.Random(way)
    async with open_engine(kind, **CACHES[way]) as reader:
        heard: list[Heard] = []
        for prompt in prompts + chance.sample(prompts, len(prompts)):
            spec = GenerationSpec(prompt=prompt, stop=StopRules(max_tokens=TOKENS), n=chance.randint(1, 4))
            heard.append(reader.submit(spec))
            for _ in range(chance.randrange(20)):
                if reader.live:
                    await reader.read_step()
            if reader.live:
                held = chance.choice(reader.live).engine_id
                reader.engine.pause(held)
                for _ in range(chance.randrange(6)):
                    others = [request for request in reader.live if request.engine_id != held]
                    if others:
                        await reader.read_step()
                reader.engine.resume(held)
        await reader.read_to_end(*heard)
    assert sum(request.cached_tokens > 0 for request in heard) > len(heard) // 3
    for request in heard:
        for tokens in request.token_ids:
            assert_equal(model, request.spec.prompt, tokens)
