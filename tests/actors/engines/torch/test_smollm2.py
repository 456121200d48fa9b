"""The built-in model gives the tokens that transformers gives, alone and in a batch."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
import transformers

from actors.engines.torch import TorchConfig, TorchEngine
from protocols.spec import GenerationSpec, Sampling, StopRules
from tests.built_in import built_in_model
from tests.conformance.reader import EngineReader

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

# A real model on two busy cores: minutes, not seconds.
pytestmark = [pytest.mark.anyio, pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(900)]

TOKENS = 64
# Beside other tests two threads wait for each other in every operator: ten times slower.
THREADS = 1
# Where the reference's two best logits are closer than this, either may be right.
TIE = 1e-4
PROMPTS = Path(__file__).parents[3] / "data" / "prompts_20.txt"


@pytest.fixture(scope="module")
def folder() -> Path:
    return built_in_model()


@pytest.fixture(scope="module")
def prompts(folder: Path) -> list[tuple[int, ...]]:
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder)
    chats = [[{"role": "user", "content": text}] for text in PROMPTS.read_text().splitlines()]
    return [
        tuple(tokenizer.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]) for chat in chats
    ]


@pytest.fixture(scope="module")
def reference(folder: Path, prompts: list[tuple[int, ...]]) -> list[Any]:
    """What generate says: per prompt the tokens, and the logits before each of them."""
    auto: Any = transformers.AutoModelForCausalLM
    torch.set_num_threads(THREADS)
    with torch.inference_mode():
        model = auto.from_pretrained(folder, dtype=torch.float32).eval()
        return [
            model.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                do_sample=False,
                max_new_tokens=TOKENS,
                eos_token_id=None,
                pad_token_id=0,
                output_logits=True,
                return_dict_in_generate=True,
            )
            for prompt in prompts
        ]


@asynccontextmanager
async def opened(folder: Path, batch: int) -> AsyncGenerator[EngineReader]:
    engine = TorchEngine(
        TorchConfig(
            model_path=folder, max_num_seqs=batch, step_tokens=256, kv_pool_tokens=8_192, threads=THREADS
        )
    )
    try:
        yield EngineReader(engine, await engine.start())
    finally:
        await engine.stop()


@pytest.mark.parametrize("batch", [1, 16])
async def test_equal_to_generate(
    batch: int, folder: Path, prompts: list[tuple[int, ...]], reference: list[Any]
) -> None:
    """20 prompts, 64 tokens: equal to generate, except from a place on where its best two logits tie."""
    async with opened(folder, batch) as reader:
        heard = [
            reader.submit(GenerationSpec(prompt=prompt, stop=StopRules(max_tokens=TOKENS)))
            for prompt in prompts
        ]
        await reader.read_until(lambda: all(request.is_ended for request in heard))
    for number, (request, wanted) in enumerate(zip(heard, reference, strict=True)):
        tokens = wanted.sequences[0, len(prompts[number]) :].tolist()
        assert len(request.tokens) == len(tokens)
        place = next((i for i in range(TOKENS) if request.tokens[i] != tokens[i]), None)
        if place is not None:
            best, second = wanted.logits[place][0].topk(2).values.tolist()
            print(f"prompt {number}, token {place}: the best logits differ by {best - second:.1e}")
            assert best - second < TIE


async def test_a_seed_gives_the_same_tokens_in_any_batch(
    folder: Path, prompts: list[tuple[int, ...]]
) -> None:
    """Sampled answers are the same alone and among 15 neighbours."""
    requests = [
        GenerationSpec(
            prompt=prompt,
            stop=StopRules(max_tokens=24),
            sampling=Sampling(temperature=0.9, top_p=0.95, seed=seed),
        )
        for seed, prompt in enumerate(prompts)
    ]
    async with opened(folder, 16) as reader:
        alone = [await reader.complete(request) for request in requests[:6]]
        together = [reader.submit(request) for request in requests]
        await reader.read_to_end(*together)
    assert [heard.tokens for heard in together[:6]] == [heard.tokens for heard in alone]
