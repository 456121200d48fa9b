"""What our own Python costs, without the framework's runtime, sockets and other processes.

    python -m tests.bench.in_process REPEATS        prints one line of JSON

Layers are read in the same way, in turns: a bare generator, the graph with a listener that does nothing, and
the whole worker (the facade over the graph, with all its telemetry) without its line in the log, with it, and
with spans for callers that are traced. All but the first have the synthetic engine, as fast as it goes.

One thread does all the work, so the CPU time of the process is the price. Each value is the least of several
bursts that are about as short as a slice of the scheduler, so that few of them are disturbed by neighbours.
Log lines go through the framework's own handler to where nobody reads; spans go to an exporter that takes
them at once.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import statistics
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from itertools import count
from types import MappingProxyType
from typing import Any

import uvloop
from dynamo.common.backend.worker import WorkerConfig
from dynamo.runtime.logging import configure_dynamo_logging
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from actors.engines.synthetic import FIRST_TOKEN_ID, SyntheticConfig, SyntheticEngine
from actors.graph import Graph, open_graph
from actors.settings import GraphSettings
from actors.supervisor import FutureWakeup
from actors.surroundings import Surroundings
from protocols.telemetry import NullTelemetry
from service.engine import ActorEngine
from service.options.budgets import OperatorTimes, plan_budgets
from service.plan import ServingPlan
from service.stopping import StopSignals
from service.telemetry.exporting import Pipeline
from service.telemetry.metrics import Metrics
from service.telemetry.recorder import Recorder
from service.telemetry.request_log import RequestLog
from service.telemetry.span_attributes import RequestAttributes
from service.telemetry.spans import Spans, resource_of
from service.telemetry.stories import Stories
from service.telemetry.trace_settings import TraceSettings
from tests.bench.figures import Ratio
from tests.doubles.callers import FakeCaller, wire_request

BARE, GRAPH, UNLOGGED, WORKER, TRACED = "bare", "graph", "worker, no log", "worker", "worker, traced"
_SHAPES = ((64, 1, 256), (1, 128, 4), (64, 128, 64))  # concurrency, tokens a request, requests of a burst
_BURSTS = 10
_TRACEPARENT = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}

Chunks = AsyncIterator[Any]
Generate = Callable[[dict[str, Any], "FakeContext"], Chunks]
_NUMBERS = count(1)


@dataclass(frozen=True, slots=True)
class Layer:
    """Something to read. log_level: of the process while it is read."""

    generate: Generate
    log_level: int = logging.WARNING
    trace_headers: Mapping[str, str] | None = None


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
    """The framework's context of a request that nobody leaves."""

    metadata: Mapping[str, str] = MappingProxyType({})

    def __init__(self, trace_headers: Mapping[str, str] | None) -> None:
        self._id = str(next(_NUMBERS))
        self._trace_headers = trace_headers

    def id(self) -> str:
        return self._id

    def trace_headers(self) -> Mapping[str, str] | None:
        return self._trace_headers

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
async def open_layers() -> AsyncIterator[dict[str, Layer]]:
    """All of them at once; those that are not read only sleep."""
    around = Surroundings(
        engine=_engine(),
        telemetry=NullTelemetry(),
        clock=time.monotonic,
        on_crash=_broken,
        new_wakeup=FutureWakeup,
    )
    async with AsyncExitStack() as opened:
        worker = await opened.enter_async_context(_open_worker(has_spans=False))
        traced = await opened.enter_async_context(_open_worker(has_spans=True))
        graph = await opened.enter_async_context(open_graph(GraphSettings(), around))
        yield {
            BARE: Layer(bare),
            GRAPH: Layer(reading_of(graph)),
            UNLOGGED: Layer(worker),
            WORKER: Layer(worker, logging.INFO),
            TRACED: Layer(traced, logging.INFO, _TRACEPARENT),
        }


@asynccontextmanager
async def _open_worker(*, has_spans: bool) -> AsyncIterator[Generate]:
    """The facade's ``generate`` over a graph of its own."""
    plan = ServingPlan(
        graph=GraphSettings(),
        budgets=plan_budgets(1.0, OperatorTimes(grace_s=0.0)),
        worker_config=WorkerConfig(namespace="bench"),
        model_path="",
        served_model_name="bench",
    )
    worker = ActorEngine(plan, _engine(), _recorder(has_spans=has_spans), StopSignals())
    await worker.start(0)
    try:
        yield worker.generate  # type: ignore[misc] # our context is a double of theirs
    finally:
        await worker.cleanup()


def _recorder(*, has_spans: bool) -> Recorder:
    metrics = Metrics(version="0", engine="synthetic", framework_version="0")
    if not has_spans:
        return Recorder(metrics, Stories(), RequestLog(), None)
    pipeline = Pipeline(TraceSettings(queue_spans=100_000), _Taker(), metrics.spans_lost)
    attributes = RequestAttributes(version="0", engine="synthetic", model="bench")
    spans = Spans(pipeline, resource_of("0", "bench"), attributes, has_roots=True)
    return Recorder(metrics, Stories(), RequestLog(), spans)


class _Taker(SpanExporter):
    """A collector that has taken everything before it was sent."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        del spans
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Nothing to end."""


async def measure(repeats: int) -> list[InProcessCase]:
    """Every shape, every layer in turn, after one round that does not count."""
    found: list[InProcessCase] = []
    async with open_layers() as layers:
        for concurrency, tokens, requests in _SHAPES:
            case = InProcessCase(concurrency, tokens, {name: [] for name in layers})
            for repeat in range(repeats + 1):
                for name, layer in layers.items():
                    gc.collect()
                    bursts = [await _cpu_us(layer, concurrency, tokens, requests) for _ in range(_BURSTS)]
                    if repeat > 0:
                        case.us[name].append(min(bursts))
            found.append(case)
    return found


async def _cpu_us(layer: Layer, concurrency: int, tokens: int, requests: int) -> float:
    """Per request when it has one token, else per token."""
    numbers = iter(range(requests))
    got = 0

    async def read() -> None:
        nonlocal got
        for _ in numbers:
            context = FakeContext(layer.trace_headers)
            async for chunk in layer.generate(wire_request(max_tokens=tokens), context):
                got += len(chunk["token_ids"])

    logging.getLogger().setLevel(layer.log_level)
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


def _main(repeats: int) -> None:
    """The result goes to where stdout was; whatever writes there or to stderr meanwhile goes nowhere."""
    output = os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    configure_dynamo_logging()
    found = uvloop.run(measure(repeats))
    with output:
        output.write(json.dumps([asdict(case) for case in found]))


if __name__ == "__main__":
    _main(int(sys.argv[1]))
