"""Decode speed of the embedded engine beside transformers: ``python -m tests.bench.torch_engine``.

The contestants take turns on one machine, in one process, with the same prompts and the same number
of tokens. What is timed is decoding alone: from the first token of the last request to the end. For
transformers that is the time of a long answer minus the time of a one-token answer.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import torch
import transformers

from actors.engines.torch import TorchConfig, TorchEngine
from protocols.spec import GenerationSpec, StopRules
from protocols.steps import EngineId
from service.models.resolution import resolve_model

PROMPT_TOKENS = 40
BATCHES = (1, 4, 16, 64)
# Tokens per request and run: about as many seconds at each batch size.
TOKENS = {1: 48, 4: 48, 16: 32, 64: 24}

_POOL_TOKENS = 16_384
# The same size of cache and of step as ours; unbounded it takes nearly all memory of the machine.
_BATCHING: Any = transformers.ContinuousBatchingConfig(
    page_size=256, num_blocks=_POOL_TOKENS // 256, max_batch_tokens=512
)

Decode = Callable[[list[tuple[int, ...]], int], Awaitable["Span"]]


@dataclass(frozen=True, slots=True)
class Span:
    """Wall and CPU seconds of decoding."""

    wall_s: float
    cpu_s: float

    @classmethod
    def since(cls, start: Span) -> Span:
        now = cls.now()
        return cls(now.wall_s - start.wall_s, now.cpu_s - start.cpu_s)

    @classmethod
    def now(cls) -> Span:
        return cls(time.perf_counter(), time.process_time())


@dataclass(slots=True)
class Row:
    """All runs of one contestant at one batch size."""

    name: str
    batch: int
    tokens_per_s: list[float] = field(default_factory=list)
    cpu_ms_per_token: list[float] = field(default_factory=list)

    def add(self, span: Span, tokens: int) -> None:
        self.tokens_per_s.append(self.batch * tokens / span.wall_s)
        self.cpu_ms_per_token.append(1e3 * span.cpu_s / (self.batch * tokens))


class OurEngine:
    """The engine as the executor uses it."""

    def __init__(self, engine: TorchEngine) -> None:
        self._engine = engine
        self._ids = count(1)

    async def decode(self, prompts: list[tuple[int, ...]], tokens: int) -> Span:
        ids = {EngineId(next(self._ids)) for _ in prompts}
        for engine_id, prompt in zip(sorted(ids), prompts, strict=True):
            self._engine.submit(
                engine_id, GenerationSpec(prompt=prompt, stop=StopRules(max_tokens=tokens + 64))
            )
        counts = dict.fromkeys(ids, 0)
        await self._read(counts, lambda: min(counts.values()) >= 1)
        start, wanted = Span.now(), sum(counts.values()) + tokens * len(ids)
        await self._read(counts, lambda: sum(counts.values()) >= wanted)
        span = Span.since(start)
        for engine_id in ids:
            self._engine.abort(engine_id)
        ended: set[EngineId] = set()
        while ended != ids:
            step = await self._engine.next_step()
            ended |= {delta.engine_id for delta in step.deltas if delta.is_last}
        return span

    async def _read(self, counts: dict[EngineId, int], is_done: Callable[[], bool]) -> None:
        while not is_done():
            for delta in (await self._engine.next_step()).deltas:
                counts[delta.engine_id] += len(delta.token_ids)


class Transformers:
    """transformers' own generate, and its continuous batching."""

    def __init__(self, model: Any) -> None:
        self._model = model

    async def generate(self, prompts: list[tuple[int, ...]], tokens: int) -> Span:
        return self._difference(self._generate, prompts, tokens)

    async def continuous(self, prompts: list[tuple[int, ...]], tokens: int) -> Span:
        return self._difference(self._continuous, prompts, tokens)

    def _difference(
        self, answer: Callable[[Any, int], object], prompts: list[tuple[int, ...]], tokens: int
    ) -> Span:
        spans: list[Span] = []
        for length in (1, 1 + tokens):
            start = Span.now()
            answer(prompts, length)
            spans.append(Span.since(start))
        return Span(spans[1].wall_s - spans[0].wall_s, spans[1].cpu_s - spans[0].cpu_s)

    def _generate(self, prompts: list[tuple[int, ...]], tokens: int) -> object:
        ids = torch.tensor(prompts)
        return self._model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            min_new_tokens=tokens,
            max_new_tokens=tokens,
        )

    def _continuous(self, prompts: list[tuple[int, ...]], tokens: int) -> object:
        config: Any = transformers.GenerationConfig(
            do_sample=False, max_new_tokens=tokens, eos_token_id=-1, pad_token_id=0
        )
        return self._model.generate_batch(
            inputs=[list(prompt) for prompt in prompts],
            generation_config=config,
            continuous_batching_config=_BATCHING,
            warmup=False,
        )


async def compare(folder: Any, batches: list[int], rounds: int, threads: int) -> list[Row]:
    """Run everybody in turn; the first round of each warms up and does not count."""
    torch.set_num_threads(threads or len(os.sched_getaffinity(0)))
    auto: Any = transformers.AutoModelForCausalLM
    with torch.inference_mode():
        peer = Transformers(auto.from_pretrained(folder, dtype=torch.float32).eval())
    engine = TorchEngine(TorchConfig(model_path=folder, kv_pool_tokens=_POOL_TOKENS, threads=threads))
    print((await engine.start()).description)
    contestants: dict[str, Decode] = {
        "this engine": OurEngine(engine).decode,
        "transformers generate": peer.generate,
        "transformers continuous batching": peer.continuous,
    }
    rows: list[Row] = []
    for batch in batches:
        prompts = [tuple(100 + 37 * i + 11 * j for j in range(PROMPT_TOKENS)) for i in range(batch)]
        cases = {name: Row(name, batch) for name in contestants}
        for turn in range(rounds + 1):
            for name, decode in contestants.items():
                with torch.inference_mode():
                    span = await decode(prompts, TOKENS[batch])
                if turn:
                    cases[name].add(span, TOKENS[batch])
        rows += cases.values()
        show(list(cases.values()))
    await engine.stop()
    return rows


def show(rows: list[Row]) -> None:
    """Medians, the best run, and our ratio to each peer."""
    ours = statistics.median(rows[0].tokens_per_s)
    for row in rows:
        median = statistics.median(row.tokens_per_s)
        print(
            f"batch {row.batch:3}  {row.name:34} {median:7.1f} tok/s (best {max(row.tokens_per_s):6.1f})"
            f"  {statistics.median(row.cpu_ms_per_token):7.2f} CPU ms/token  ours is {ours / median:4.2f}x"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--batches", type=int, nargs="+", default=list(BATCHES), choices=BATCHES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=0)
    options = parser.parse_args()
    folder = resolve_model(options.model).path
    print(f"load average before: {os.getloadavg()}")
    asyncio.run(compare(folder, options.batches, options.rounds, options.threads))
    print(f"load average after: {os.getloadavg()}")


if __name__ == "__main__":
    main()
