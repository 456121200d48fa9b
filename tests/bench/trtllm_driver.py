"""What the driver of TensorRT-LLM costs, without TensorRT-LLM.

    python -m tests.bench.trtllm_driver [REPEATS]

An iteration of a made-up engine puts one more token into every request's results, as the thread of the
library does that dispatches them. Two contestants read them in turns: the least that a worker can do (a task
a request which cuts what is new off each result), and the driver with its one step a loop turn. CPU time of
the process a token.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvloop

from actors.engines.trtllm.answers.collecting import StepCollector
from actors.engines.trtllm.answers.following import Reading
from actors.engines.trtllm.config import TrtllmConfig
from actors.engines.trtllm.library import import_library
from actors.engines.trtllm.loading import Loaded
from actors.engines.trtllm.processors.steering import Steering
from actors.engines.trtllm.requests.asking import Asking
from actors.engines.trtllm.running import Hooks, Running
from protocols.engine import EngineInfo
from protocols.spec import GenerationSpec, StopRules
from protocols.steps import EngineId
from tests.doubles.trtllm_site import double_on_path

TOKENS = 128
CONCURRENCIES = (1, 16, 64, 256)
# Tokens of one measurement, so that each takes about a tenth of a second.
_WORK = 32_768

Read = Callable[[list["MadeUp"]], Awaitable[None]]


class Choice:
    """A ``CompletionOutput`` with what is read of it."""

    __slots__ = ("disaggregated_params", "finish_reason", "request_perf_metrics", "stop_reason", "token_ids")

    def __init__(self) -> None:
        self.token_ids: list[int] = []
        self.finish_reason: str | None = None
        self.stop_reason = self.disaggregated_params = self.request_perf_metrics = None


class MadeUp:
    """A ``RequestOutput``: the same object after each response."""

    def __init__(self) -> None:
        self.outputs = [Choice()]
        self.finished = False
        self.error = None
        self.cached_tokens = 0
        self._responses: asyncio.Queue[None] = asyncio.Queue()

    def step(self) -> None:
        """One more token."""
        choice = self.outputs[0]
        choice.token_ids.append(1000 + len(choice.token_ids))
        if len(choice.token_ids) == TOKENS:
            choice.finish_reason, self.finished = "length", True
        self._responses.put_nowait(None)

    def __aiter__(self) -> MadeUp:
        return self

    async def __anext__(self) -> MadeUp:
        if self.finished and self._responses.empty():
            raise StopAsyncIteration
        await self._responses.get()
        return self


async def iterate(requests: list[MadeUp]) -> None:
    """All iterations of the engine, one a turn of the loop."""
    for _ in range(TOKENS):
        for request in requests:
            request.step()
        await asyncio.sleep(0)


async def read_bare(requests: list[MadeUp]) -> None:
    """Without anything that could go wrong."""

    async def consume(request: MadeUp) -> int:
        told = 0
        async for result in request:
            told += len(result.outputs[0].token_ids[told:])
        return told

    consumers = [asyncio.create_task(consume(request)) for request in requests]
    await iterate(requests)
    assert await asyncio.gather(*consumers) == [TOKENS] * len(requests)


async def read_by_driver(requests: list[MadeUp]) -> None:
    """Everything from `submit` to the steps."""
    steps, pending = StepCollector(), iter(requests)
    config = TrtllmConfig(model_path=Path("model"), vocab_size=32_000, context_length=4096)
    info = EngineInfo(model="m", context_length=4096, max_num_seqs=256, vocab_size=32_000)

    class Llm:
        def generate_async(self, **_asked: Any) -> MadeUp:
            return next(pending)

        _executor = None

    library = import_library()
    hooks = Hooks(Reading(dict, _nothing), _nothing, lambda: None, _well, lambda _last, _result: None)
    loaded = Loaded(library, Llm(), info)
    running = Running(loaded, Asking(library, config, None), Steering(config), steps, hooks)
    spec = GenerationSpec(prompt=(1, 2, 3), stop=StopRules(max_tokens=TOKENS))
    for number in range(len(requests)):
        running.submit(EngineId(number), spec)
    engine, left, tokens = asyncio.create_task(iterate(requests)), len(requests), 0
    while left:
        for delta in (await steps.next_step(lambda: running.running)).deltas:
            tokens += len(delta.token_ids)
            left -= delta.is_last
    await engine
    assert tokens == TOKENS * len(requests)


async def _well() -> None:
    return None


def _nothing(_value: Any) -> None:
    return None


def cost_us(read: Read, concurrency: int) -> float:
    """Microseconds of CPU a token."""

    async def burst() -> None:
        await read([MadeUp() for _ in range(concurrency)])

    bursts = max(1, _WORK // (concurrency * TOKENS))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(burst())
        started_s = time.process_time()
        for _ in range(bursts):
            runner.run(burst())
        return (time.process_time() - started_s) * 1e6 / (bursts * concurrency * TOKENS)


def main(repeats: int) -> None:
    """A B A B, and the medians."""
    print(
        "us of CPU a token         bare    driver   driver / bare, of the same turn: median (least to most)"
    )
    for concurrency in CONCURRENCIES:
        turns = [
            (cost_us(read_bare, concurrency), cost_us(read_by_driver, concurrency)) for _ in range(repeats)
        ]
        bare, driver = (statistics.median(each) for each in zip(*turns, strict=True))
        ratios = sorted(ours / theirs for theirs, ours in turns)
        spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        print(f"{concurrency:>4} requests at once   {bare:8.2f}  {driver:8.2f}   {spread}")


if __name__ == "__main__":
    with double_on_path():
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
