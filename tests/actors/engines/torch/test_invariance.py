"""The same request gives the same bits in any company, on one machine and thread count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from actors.engines.torch.runner import ModelRunner
from actors.engines.torch.sampler import Sampler
from protocols.spec import GenerationSpec, Sampling, StopRules
from tests.actors.engines.torch import tiny_models

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from tests.actors.engines.torch.conftest import Opener

    Seen = dict[tuple[int, int, int], torch.Tensor]

pytestmark = pytest.mark.anyio

TOKENS = 9
LENGTHS = (17, 5, 63, 150, 40, 100)
WAYS: dict[str, dict[str, Any]] = {
    "one batch": {"step_tokens": 512},
    "chunks": {"step_tokens": 140},
    "steps smaller than a piece": {"step_tokens": 23},
    "few slots": {"max_num_seqs": 3},
    "preemption": {"kv_pool_tokens": 256},
    # One such way: on a busy machine two threads wait for each other in every operator.
    "two threads": {"step_tokens": 140, "threads": 2},
}


@pytest.fixture
def logits_seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Logits by (seed of the request, choice, position), as the sampler gets them."""
    seen: Seen = {}
    choose = Sampler.choose

    def watched(self: Sampler, logits: torch.Tensor, sequences: list[Any]) -> list[int | None]:
        for row, sequence in zip(logits.clone(), sequences, strict=True):
            seen[sequence.spec.sampling.seed, sequence.index, len(sequence.tokens)] = row
        return choose(self, logits, sequences)

    monkeypatch.setattr(Sampler, "choose", watched)
    return seen


@pytest.fixture
def scrubs(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Blocks taken from sequences that had not ended."""
    seen: list[list[int]] = []
    monkeypatch.setattr(ModelRunner, "scrub", lambda _, blocks: seen.append(blocks))
    return seen


def different(alone: Seen, seen: Seen) -> list[tuple[int, int, int]]:
    """Where the bits are not the same."""
    return [key for key, row in alone.items() if not row.equal(seen[key])]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_logits_do_not_depend_on_the_batch(
    way: dict[str, Any],
    open_engine: Opener,
    logits_seen: Seen,
    scrubs: list[list[int]],
) -> None:
    """Alone, in a batch, in chunks, after preemption: every logit of every token is bitwise equal."""
    requests = [
        GenerationSpec(
            prompt=prompt,
            stop=StopRules(max_tokens=TOKENS),
            sampling=Sampling(temperature=0.8, seed=seed),
        )
        for seed, prompt in enumerate(tiny_models.prompts(LENGTHS))
    ]
    async with open_engine(threads=way.get("threads", 1), step_tokens=256) as reader:
        for request in requests:
            await reader.complete(request)
    alone = dict(logits_seen)
    logits_seen.clear()
    async with open_engine(**{"threads": 1, "step_tokens": 200, **way}) as reader:
        held = reader.submit(requests[0])
        await reader.read_until(lambda: bool(held.tokens))
        reader.engine.pause(held.engine_id)
        others = [reader.submit(request) for request in requests[1:]]
        await reader.read_until(lambda: bool(others[2].tokens))
        reader.engine.resume(held.engine_id)
        await reader.read_to_end(held, *others)
    assert bool(scrubs) == ("kv_pool_tokens" in way), "only the small pool makes sequences give way"
    assert alone.keys() == logits_seen.keys()
    assert not different(alone, logits_seen)


# Where prompts leave a common trunk: at and beside the ends of blocks (8), of pieces (64), and in between.
FORKS = (8, 12, 63, 64, 65, 72, 100, 127, 136, 200, 216)


def forked(seed: int, fork: int, cache_salt: str) -> GenerationSpec:
    """The first ``fork`` tokens of the trunk, and then up to 10 of its own; two choices."""
    (trunk,) = tiny_models.prompts((220,))
    return GenerationSpec(
        prompt=trunk[:fork] + tuple((seed * 13 + i) % 320 for i in range(1 + seed % 10)),
        stop=StopRules(max_tokens=TOKENS),
        sampling=Sampling(temperature=0.8, seed=seed),
        cache_salt=cache_salt,
        n=2,
    )


@pytest.mark.timeout(120)
@pytest.mark.parametrize("step_tokens", [23, 512])
@pytest.mark.parametrize("order", [1, -1], ids=["short first", "long first"])
async def test_logits_do_not_depend_on_what_is_cached(
    order: int, step_tokens: int, open_engine: Opener, logits_seen: Seen
) -> None:
    """A prompt whose beginning others have computed gets the bits it would have computed, in each choice."""
    forks = list(enumerate(FORKS))[::order]
    async with open_engine(step_tokens=512) as reader:
        for seed, fork in forks:
            await reader.complete(forked(seed, fork, cache_salt=f"alone {seed}"))
        alone = dict(logits_seen)
        logits_seen.clear()
    async with open_engine(step_tokens=step_tokens, kv_pool_tokens=4096) as reader:
        heard = [await reader.complete(forked(*forks[0], cache_salt="shared"))]
        heard += [reader.submit(forked(seed, fork, cache_salt="shared")) for seed, fork in forks[1:]]
        await reader.read_to_end(*heard)
    assert sum(request.cached_tokens > 0 for request in heard) >= (5 if order == 1 else len(FORKS) - 1)
    assert alone.keys() == logits_seen.keys()
    assert not different(alone, logits_seen)
    for seed, request in enumerate(sorted(heard, key=lambda one: one.spec.sampling.seed)):
        place = len(request.spec.prompt)
        assert logits_seen[seed, 0, place].equal(logits_seen[seed, 1, place])


@pytest.mark.timeout(120)
async def test_many_query_heads_of_one_kv_head(
    open_engine: Opener, logits_seen: Seen, tmp_path: Path
) -> None:
    """Four query heads share a KV head: beside longer neighbours a sequence has the bits it has alone."""
    folder = tiny_models.save(tiny_models.make_model("llama", num_key_value_heads=1), tmp_path)
    requests = [
        GenerationSpec(
            prompt=prompt,
            stop=StopRules(max_tokens=TOKENS),
            sampling=Sampling(seed=seed),
            cache_salt=str(seed),
        )
        for seed, prompt in enumerate(tiny_models.prompts((185, 187, 199, 201, 215, 230, 240, 30)))
    ]
    async with open_engine(model_path=folder, step_tokens=512) as reader:
        for request in requests:
            await reader.complete(request)
        alone = dict(logits_seen)
        logits_seen.clear()
        heard = [reader.submit(request) for request in requests]
        await reader.read_to_end(*heard)
    assert alone.keys() == logits_seen.keys()
    assert not different(alone, logits_seen)
