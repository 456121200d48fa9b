"""The built-in model gives the tokens that transformers gives, alone and in a batch."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
import transformers

from actors.engines.torch import TorchConfig, TorchEngine
from protocols.spec import GenerationSpec, Output, Sampling, StopRules
from tests.actors.engines.torch.told import Told
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
def model(folder: Path) -> Any:
    """The reference: transformers' own code and attention."""
    auto: Any = transformers.AutoModelForCausalLM
    torch.set_num_threads(THREADS)
    return auto.from_pretrained(folder, dtype=torch.float32).eval()


@torch.inference_mode()
def logits_of(model: Any, tokens: tuple[int, ...]) -> torch.Tensor:
    """``[tokens, vocabulary]`` of one plain forward pass: row p is what follows token p."""
    logits: torch.Tensor = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]
    return logits


@asynccontextmanager
async def opened(folder: Path) -> AsyncGenerator[EngineReader]:
    engine = TorchEngine(
        TorchConfig(
            model_path=folder, max_num_seqs=16, step_tokens=256, kv_pool_tokens=8_192, threads=THREADS
        )
    )
    try:
        yield EngineReader(engine, await engine.start())
    finally:
        await engine.stop()


def greedy(prompt: tuple[int, ...], salt: str) -> GenerationSpec:
    """Prompts begin alike: only with a salt of its own is each computed in full."""
    return GenerationSpec(prompt=prompt, stop=StopRules(max_tokens=TOKENS), cache_salt=salt)


async def test_equal_to_generate(folder: Path, prompts: list[tuple[int, ...]], model: Any) -> None:
    """20 prompts, 64 tokens, alone and 16 at once: each token is the best of a plain forward pass.

    That is what greedy generate does, token for token, and here a tie does not end the comparison.
    """
    async with opened(folder) as reader:
        alone = [await reader.complete(greedy(prompt, f"{i}")) for i, prompt in enumerate(prompts)]
        together = [reader.submit(greedy(prompt, f"again {i}")) for i, prompt in enumerate(prompts)]
        await reader.read_to_end(*together)
        assert reader.most_running == 16
    for number, (prompt, one, other) in enumerate(zip(prompts, alone, together, strict=True)):
        assert one.tokens == other.tokens
        assert (len(one.tokens), one.cached_tokens, other.cached_tokens) == (TOKENS, 0, 0)
        logits = logits_of(model, (*prompt, *one.tokens[:-1]))[len(prompt) - 1 :]
        behind = logits.amax(dim=-1) - logits.gather(-1, torch.tensor(one.tokens).unsqueeze(-1))[:, 0]
        if behind.any():
            print(f"prompt {number}: the best logit is up to {behind.max():.1e} above the chosen one's")
        assert behind.max() < TIE


async def test_the_reference_is_what_generate_says(prompts: list[tuple[int, ...]], model: Any) -> None:
    """Greedy by plain forward passes is generate, checked where it is cheap: one prompt, 16 tokens."""
    prompt = min(prompts, key=len)
    with torch.inference_mode():
        said = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            do_sample=False,
            max_new_tokens=16,
            eos_token_id=None,
            pad_token_id=0,
        )[0].tolist()
    assert (
        logits_of(model, tuple(said[:-1]))[len(prompt) - 1 :].argmax(dim=-1).tolist() == said[len(prompt) :]
    )


async def test_logprobs_are_those_of_a_plain_forward_pass(
    folder: Path, prompts: list[tuple[int, ...]], model: Any
) -> None:
    """Of output and prompt, four requests at once, one of them longer than two pieces: within 1e-3."""
    long = tuple(token for prompt in prompts[:5] for token in prompt)[:150]
    asked = [*prompts[:3], long]
    async with opened(folder) as reader:
        told = Told(reader)
        heard = [
            reader.submit(
                GenerationSpec(
                    prompt=prompt,
                    stop=StopRules(max_tokens=8),
                    sampling=Sampling(temperature=0.9, seed=number, repetition_penalty=1.2),
                    output=Output(logprobs=5, prompt_logprobs=3),
                )
            )
            for number, prompt in enumerate(asked)
        ]
        await told.read_to_end(*heard)
    for request in heard:
        told.check(model, request, 1e-3)


async def test_a_seed_gives_the_same_tokens_in_any_batch(
    folder: Path, prompts: list[tuple[int, ...]]
) -> None:
    """Sampled answers are the same alone and among 15 neighbours."""
    requests = [
        GenerationSpec(
            prompt=prompt,
            stop=StopRules(max_tokens=24),
            sampling=Sampling(temperature=0.9, top_p=0.95, seed=seed),
            cache_salt=salt,
        )
        for salt in ("alone", "together")
        for seed, prompt in enumerate(prompts)
    ]
    async with opened(folder) as reader:
        alone = [await reader.complete(request) for request in requests[:6]]
        together = [reader.submit(request) for request in requests[len(prompts) :]]
        await reader.read_to_end(*together)
    assert [heard.tokens for heard in together[:6]] == [heard.tokens for heard in alone]
