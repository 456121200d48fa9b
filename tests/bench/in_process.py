"""What our own Python costs, without the framework's runtime, sockets and other processes.

    python -m tests.bench.in_process REPEATS        prints one line of JSON

Three layers are read in the same way, in turns: a bare generator, the graph with a listener that does
nothing, and the whole worker (the facade over the graph, with all its telemetry). The engine of the last two
is the synthetic one as fast as it goes. One thread does all the work, so the CPU time of the process is the
price.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from itertools import count
from types import MappingProxyType
from typing import Any

import uvloop
from dynamo.common.backend.worker import WorkerConfig

from actors.engines.synthetic import FIRST_TOKEN_ID, SyntheticConfig, SyntheticEngine
from actors.graph import Graph, Surroundings, open_graph
from actors.settings import GraphSettings
from actors.supervisor import FutureWakeup
from protocols.telemetry import NullTelemetry
from service.engine import ActorEngine
from service.options.budgets import OperatorTimes, plan_budgets
from service.plan import ServingPlan
from service.stopping import StopSignals
from service.telemetry.logs import configure_logging
from service.telemetry.recorder import RecorderSettings, build_recorder
from tests.bench.figures import Ratio
from tests.doubles.callers import FakeCaller, wire_request

BARE, GRAPH, WORKER = "bare", "graph", "worker"
_SHAPES = ((64, 1, 2048), (1, 128, 32), (64, 128, 256))  # concurrency, tokens a request, requests

Chunks = AsyncIterator[Any]
Generate = Callable[[dict[str, Any], "FakeContext"], Chunks]
_NUMBERS = count(1)


@dataclass(slots=True)
class InProcessCase:
    """us: by layer, microseconds of CPU per request (of one token) or per token, one value a repeat."""

    concurrency: int
    tokens: int
    us: dict[str, list[float]]

    def median_us(self, layer: str) -> float:
        """Of all repeats."""
        return statistics.median(self.us[layer])

    def over_bare(self, layer: str) -> Ratio:
        """What the layer adds to the bare generator of the same repeat (a difference, not a ratio)."""
        each = [ours - bare for ours, bare in zip(self.us[layer], self.us[BARE], strict=True)]
        return Ratio(statistics.median(each), min(each), max(each))


class FakeContext:
    """The framework's context of a request that nobody traces and nobody leaves."""

    metadata: Mapping[str, str] = MappingProxyType({})

    def __init__(self) -> None:
        self._id = str(next(_NUMBERS))

    def id(self) -> str:
        return self._id

    def trace_headers(self) -> Mapping[str, str] | None:
        return None

    def is_stopped(self) -> bool:
        return False


async def bare(request: dict[str, Any], context: FakeContext) -> AsyncGenerator[dict[str, Any], None]:
    """The least a worker can do: one turn of the loop, one chunk."""
    max_tokens = request["stop_conditions"]["max_tokens"]
    for place in range(max_tokens):
        await asyncio.sleep(0)
        if context.is_stopped():
            return
        chunk: dict[str, Any] = {"token_ids": [FIRST_TOKEN_ID + place], "index": 0}
        if place == max_tokens - 1:
            chunk["finish_reason"] = "length"
        yield chunk


def reading_of(graph: Graph) -> Generate:
    """As the facade reads the graph, and nothing around it."""

    async def generate(request: dict[str, Any], _context: FakeContext) -> Chunks:
        outbox = graph.submit(FakeCaller(), request).outbox
        while not outbox.is_drained:
            yield await outbox.take()

    return generate


@asynccontextmanager
async def open_layers() -> AsyncIterator[dict[str, Generate]]:
    """All of them at once; those that are not read only sleep."""
    around = Surroundings(
        engine=_engine(),
        telemetry=NullTelemetry(),
        clock=time.monotonic,
        on_crash=_broken,
        new_wakeup=FutureWakeup,
    )
    plan = ServingPlan(
        graph=GraphSettings(),
        budgets=plan_budgets(1.0, OperatorTimes(grace_s=0.0)),
        worker_config=WorkerConfig(namespace="bench"),
        model_path="",
        served_model_name="bench",
    )
    recorder = build_recorder(RecorderSettings(engine="synthetic", framework_version="0"))
    worker = ActorEngine(plan, _engine(), recorder, StopSignals())
    await worker.start(0)
    try:
        async with open_graph(GraphSettings(), around) as graph:
            yield {BARE: bare, GRAPH: reading_of(graph), WORKER: worker.generate}  # type: ignore[dict-item]
    finally:
        await worker.cleanup()


async def measure(repeats: int) -> list[InProcessCase]:
    """Every shape, every layer in turn, after one round that does not count."""
    found: list[InProcessCase] = []
    async with open_layers() as layers:
        for concurrency, tokens, requests in _SHAPES:
            case = InProcessCase(concurrency, tokens, {name: [] for name in layers})
            for repeat in range(repeats + 1):
                for name, generate in layers.items():
                    cpu_us = await _cpu_us(generate, concurrency, tokens, requests)
                    if repeat > 0:
                        case.us[name].append(cpu_us)
            found.append(case)
    return found


async def _cpu_us(generate: Generate, concurrency: int, tokens: int, requests: int) -> float:
    """Per request when it has one token, else per token."""
    numbers = iter(range(requests))
    got = 0

    async def read() -> None:
        nonlocal got
        for _ in numbers:
            async for chunk in generate(wire_request(max_tokens=tokens), FakeContext()):
                got += len(chunk["token_ids"])

    gc.collect()
    started_s = time.process_time()
    async with asyncio.TaskGroup() as readers:
        for _ in range(concurrency):
            readers.create_task(read())
    used_s = time.process_time() - started_s
    assert got == requests * tokens, f"{got} tokens of {requests * tokens}"
    return used_s / got * 1e6


def _engine() -> SyntheticEngine:
    return SyntheticEngine(SyntheticConfig(step_ms=0.0))


def _broken(cause: BaseException) -> None:
    raise AssertionError("the graph broke") from cause


if __name__ == "__main__":
    configure_logging(os.environ)
    print(json.dumps([asdict(case) for case in uvloop.run(measure(int(sys.argv[1])))]))
