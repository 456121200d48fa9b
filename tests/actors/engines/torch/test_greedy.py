"""Greedy tokens are those of transformers' own generate, however the work is cut up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from protocols.spec import GenerationSpec, StopRules
from tests.actors.engines.torch import tiny_models

if TYPE_CHECKING:
    from tests.actors.engines.torch.conftest import Opener

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
    assert [request.tokens for request in heard] == wanted
