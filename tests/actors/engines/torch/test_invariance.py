"""The same request gives the same bits in any company, on one machine and thread count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from actors.engines.torch.runner import ModelRunner
from actors.engines.torch.sampler import Sampler
from protocols.spec import GenerationSpec, Sampling, StopRules
from tests.actors.engines.torch import tiny_models

if TYPE_CHECKING:
    import torch

    from tests.actors.engines.torch.conftest import Opener

pytestmark = pytest.mark.anyio

TOKENS = 9
LENGTHS = (17, 5, 63, 150, 40, 100)
WAYS: dict[str, dict[str, Any]] = {
    "one batch": {"step_tokens": 512},
    "chunks": {"step_tokens": 140},
    "few slots": {"max_num_seqs": 3},
    "preemption": {"kv_pool_tokens": 256},
}


@pytest.fixture
def logits_seen(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[int, int], torch.Tensor]:
    """Logits by (seed of the request, position), as the sampler gets them."""
    seen: dict[tuple[int, int], torch.Tensor] = {}
    choose = Sampler.choose

    def watched(self: Sampler, logits: torch.Tensor, sequences: list[Any]) -> list[int | None]:
        for row, sequence in zip(logits.clone(), sequences, strict=True):
            seen[sequence.spec.sampling.seed, len(sequence.tokens)] = row
        return choose(self, logits, sequences)

    monkeypatch.setattr(Sampler, "choose", watched)
    return seen


@pytest.fixture
def scrubs(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Blocks taken from sequences that had not ended."""
    seen: list[list[int]] = []
    monkeypatch.setattr(ModelRunner, "scrub", lambda _, blocks: seen.append(blocks))
    return seen


# Two threads on a busy machine wait for each other in every operator.
@pytest.mark.timeout(120)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_logits_do_not_depend_on_the_batch(
    way: dict[str, Any],
    open_engine: Opener,
    logits_seen: dict[tuple[int, int], torch.Tensor],
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
    async with open_engine(threads=2, step_tokens=256) as reader:
        for request in requests:
            await reader.complete(request)
    alone = dict(logits_seen)
    logits_seen.clear()
    async with open_engine(**{"threads": 2, "step_tokens": 200, **way}) as reader:
        held = reader.submit(requests[0])
        await reader.read_until(lambda: bool(held.tokens))
        reader.engine.pause(held.engine_id)
        others = [reader.submit(request) for request in requests[1:]]
        await reader.read_until(lambda: bool(others[2].tokens))
        reader.engine.resume(held.engine_id)
        await reader.read_to_end(held, *others)
    assert bool(scrubs) == ("kv_pool_tokens" in way), "only the small pool makes sequences give way"
    assert alone.keys() == logits_seen.keys()
    different = [key for key, row in alone.items() if not row.equal(logits_seen[key])]
    assert not different
