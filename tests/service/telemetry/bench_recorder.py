"""What listening costs a request, in this process: ``python -m tests.service.telemetry.bench_recorder``.

The log goes through the framework's own handler to where nobody reads; sampled spans go to an exporter that
takes them at once. CPU time of the thread that the event loop would have; what the exporter's thread does
with the spans of one request (encoding) is a line of its own. All cases in turns, the median of many rounds.
"""

from __future__ import annotations

import logging
import os
import statistics
import time
from typing import TYPE_CHECKING, Any

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from protocols.spec import Sampling
from protocols.steps import EngineStep
from protocols.telemetry import NullTelemetry
from service.telemetry.exporting import Pipeline
from service.telemetry.logs import configure_logging
from service.telemetry.metrics import Metrics
from service.telemetry.recorder import Recorder
from service.telemetry.request_log import RequestLog
from service.telemetry.span_attributes import RequestAttributes
from service.telemetry.spans import Spans, resource_of
from service.telemetry.stories import Stories
from service.telemetry.trace_settings import TraceSettings
from tests.service.telemetry.tales import SAMPLED, UNSAMPLED, pace_of, tale

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from opentelemetry.sdk.trace import ReadableSpan

    from protocols.telemetry import Telemetry

# A turn of one case is shorter than a slice of the scheduler, and there are many.
_ROUNDS, _REQUESTS = 200, 20
_NOTHING = "nothing listens"
# Of a request of 64 tokens, as the graph tells it.
_STORY: dict[str, Any] = {
    "finish_reason": "length",
    "completion_tokens": 64,
    "chunks": 64,
    "sampling": Sampling(temperature=0.75, top_p=0.5, seed=7),
    "max_tokens": 64,
    "pace": pace_of(*((100.5 + place / 32, place + 1) for place in range(64))),
}


class _Taker(SpanExporter):
    def __init__(self) -> None:
        self.last: Sequence[ReadableSpan] = ()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.last = spans
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Nothing to end."""


def _recorder(exporter: SpanExporter | None) -> Recorder:
    metrics = Metrics(version="1", engine="synthetic", framework_version="1.4.2")
    spans = None
    if exporter is not None:
        pipeline = Pipeline(TraceSettings(queue_spans=100_000), exporter, metrics.spans_lost)
        attributes = RequestAttributes(version="1", engine="synthetic", model="m")
        spans = Spans(pipeline, resource_of("1", "i"), attributes, has_roots=True)
    return Recorder(metrics, Stories(), RequestLog(), spans)


def _requests(listener: Telemetry, headers: Mapping[str, str] | None) -> Callable[[], None]:
    def one() -> None:
        _, context = listener.request_submitted(headers)
        listener.request_ended(tale(trace_headers=headers, execute_context=context, **_STORY))

    return one


def _turn_us(one: Callable[[], object]) -> float:
    began = time.thread_time()
    for _ in range(_REQUESTS):
        one()
    return (time.thread_time() - began) / _REQUESTS * 1e6


def _medians_us(cases: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """All cases in turns."""
    found: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(_ROUNDS):
        for name, one in cases.items():
            found[name].append(_turn_us(one))
    return {name: statistics.median(values) for name, values in found.items()}


def _yardstick(provider: TracerProvider) -> Callable[[], object]:
    """One span through the SDK's tracer with three attributes, to compare runs on different machines."""
    tracer = provider.get_tracer("yardstick")
    return lambda: tracer.start_span("span", attributes={"a": 1, "b": "c", "d": 3}).end()


def _encoding_us() -> float:
    """Of the spans of one request, in the exporter's thread."""
    taker = _Taker()
    recorder = _recorder(taker)
    _requests(recorder, SAMPLED)()
    recorder.shutdown()
    return statistics.median(
        _turn_us(lambda: encode_spans(taker.last).SerializeToString()) for _ in range(_ROUNDS)
    )


def main() -> None:
    """Print a table; everything else goes to where nobody reads."""
    from dynamo.runtime.logging import configure_dynamo_logging

    out = os.fdopen(os.dup(1), "w")
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 2)
    os.dup2(sink, 1)
    configure_logging(os.environ)
    configure_dynamo_logging()
    off, exporting = _recorder(None), _recorder(_Taker())
    provider = TracerProvider(sampler=ALWAYS_ON, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(_Taker(), max_queue_size=100_000))
    step = EngineStep([], 0.0, 0.02)
    cases: dict[str, Callable[[], object]] = {
        _NOTHING: _requests(NullTelemetry(), None),
        "spans off": _requests(off, None),
        "spans off, caller traced": _requests(off, SAMPLED),
        "spans on, caller not traced": _requests(exporting, None),
        "spans on, not sampled": _requests(exporting, UNSAMPLED),
        "spans on, sampled": _requests(exporting, SAMPLED),
        "yardstick: one SDK span": _yardstick(provider),
        "one engine step": lambda: off.step_done(step, 64),
    }
    with_log = _medians_us(cases)
    logging.getLogger().setLevel(logging.WARNING)
    without_log = _medians_us(cases)
    for name in cases:
        is_request = name.startswith("spans")
        base = with_log[_NOTHING] if is_request else 0.0
        line = f", of that the log line {with_log[name] - without_log[name]:6.1f}" if is_request else ""
        print(f"{name:<30}{with_log[name] - base:8.1f} us{line}", file=out)
    print(f"{'encoding of one request':<30}{_encoding_us():8.1f} us, in the exporter's thread", file=out)
    out.flush()
    for recorder in (off, exporting):
        recorder.shutdown()
    provider.shutdown()


if __name__ == "__main__":
    main()
