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
# What one prompt says of them when it is alone.
PART = 16
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


def greedy(prompt: tuple[int, ...], salt: str, tokens: int = TOKENS) -> GenerationSpec:
    """Prompts begin alike: only with a salt of its own is each computed in full."""
    return GenerationSpec(prompt=prompt, stop=StopRules(max_tokens=tokens), cache_salt=salt)


async def test_equal_to_generate(folder: Path, prompts: list[tuple[int, ...]], model: Any) -> None:
    """20 prompts, 64 tokens, 16 at once: each token is the best of a plain forward pass.

    That is what greedy generate does, token for token, and here a tie does not end the comparison.
    """
    async with opened(folder) as reader:
        heard = [reader.submit(greedy(prompt, f"{i}")) for i, prompt in enumerate(prompts)]
        await reader.read_to_end(*heard)
        assert reader.most_running == 16
        await check_alone(reader, prompts, [request.tokens for request in heard])
    for number, (prompt, request) in enumerate(zip(prompts, heard, strict=True)):
        assert (len(request.tokens), request.cached_tokens) == (TOKENS, 0)
        logits = logits_of(model, (*prompt, *request.tokens[:-1]))[len(prompt) - 1 :]
        behind = logits.amax(dim=-1) - logits.gather(-1, torch.tensor(request.tokens).unsqueeze(-1))[:, 0]
        if behind.any():
            print(f"prompt {number}: the best logit is up to {behind.max():.1e} above the chosen one's")
        assert behind.max() < TIE


async def check_alone(reader: EngineReader, prompts: list[tuple[int, ...]], answers: list[list[int]]) -> None:
    """One at a time the prompts say the same: each its own quarter, behind the part of the answer before it.

    What is greedy follows from the tokens before it alone, and a step of one costs as much as one of many.
    """
    for number, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        begin = number * PART % TOKENS
        alone = await reader.complete(greedy((*prompt, *answer[:begin]), f"alone {number}", PART))
        assert (alone.tokens, alone.cached_tokens) == (answer[begin : begin + PART], 0)


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

    def request(seed: int, salt: str) -> GenerationSpec:
        sampling = Sampling(temperature=0.9, top_p=0.95, seed=seed)
        stop = StopRules(max_tokens=PART)
        return GenerationSpec(prompt=prompts[seed], stop=stop, sampling=sampling, cache_salt=salt)

    async with opened(folder) as reader:
        alone = [await reader.complete(request(seed, "alone")) for seed in range(4)]
        together = [reader.submit(request(seed, "together")) for seed in range(16)]
        await reader.read_to_end(*together)
        assert reader.most_running == 16
    assert [heard.tokens for heard in together[:4]] == [heard.tokens for heard in alone]
