"""What listening costs a request, in this process: ``python -m tests.service.telemetry.bench_recorder``.

The log goes through the framework's own handler to where nobody reads; sampled spans go to an exporter that
takes them at once, so the encoding for a collector, done in another thread, is not in the figure.
CPU time of the whole process, the best of many rounds.
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from protocols.steps import EngineStep
from protocols.telemetry import NullTelemetry
from service.telemetry.exporting import Pipeline
from service.telemetry.metrics import Metrics
from service.telemetry.recorder import Recorder
from service.telemetry.request_log import RequestLog
from service.telemetry.span_attributes import RequestAttributes
from service.telemetry.spans import Spans, resource_of
from service.telemetry.stories import Stories
from service.telemetry.trace_settings import TraceSettings
from tests.service.telemetry.tales import SAMPLED, UNSAMPLED, tale

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from opentelemetry.sdk.trace import ReadableSpan

    from protocols.telemetry import Telemetry

# A round is shorter than a slice of the scheduler, and there are many: the best is one that nobody disturbed.
_ROUNDS, _REQUESTS = 600, 20


class _Taker(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        del spans
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Nothing to end."""


def _recorder(*, has_spans: bool) -> Recorder:
    metrics = Metrics(version="1", engine="synthetic", framework_version="1.4.2")
    spans = None
    if has_spans:
        pipeline = Pipeline(TraceSettings(queue_spans=100_000), _Taker(), metrics.spans_lost)
        attributes = RequestAttributes(version="1", engine="synthetic", model="m")
        spans = Spans(pipeline, resource_of("1", "i"), attributes, has_roots=True)
    return Recorder(metrics, Stories(), RequestLog(), spans)


def _request_us(listener: Telemetry, headers: Mapping[str, str] | None) -> float:
    best = float("inf")
    for _ in range(_ROUNDS):
        began = time.process_time()
        for _ in range(_REQUESTS):
            _, context = listener.request_submitted(headers)
            listener.request_ended(tale(trace_headers=headers, execute_context=context))
        best = min(best, time.process_time() - began)
    return best / _REQUESTS * 1e6


def _yardstick_us() -> float:
    """One span through the SDK's tracer with three attributes, to compare runs on different machines."""
    provider = TracerProvider(sampler=ALWAYS_ON, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(_Taker(), max_queue_size=100_000))
    tracer = provider.get_tracer("yardstick")
    best = float("inf")
    for _ in range(_ROUNDS):
        began = time.process_time()
        for _ in range(_REQUESTS):
            tracer.start_span("span", attributes={"a": 1, "b": "c", "d": 3}).end()
        best = min(best, time.process_time() - began)
    provider.shutdown()
    return best / _REQUESTS * 1e6


def _step_us(listener: Telemetry) -> float:
    step = EngineStep([], 0.0, 0.02)
    best = float("inf")
    for _ in range(_ROUNDS):
        began = time.process_time()
        for _ in range(_REQUESTS):
            listener.step_done(step, 64)
        best = min(best, time.process_time() - began)
    return best / _REQUESTS * 1e6


def main() -> None:
    """Print a table; everything else goes to the file."""
    from dynamo.runtime.logging import configure_dynamo_logging

    out = os.fdopen(os.dup(1), "w")
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 2)
    os.dup2(sink, 1)
    configure_dynamo_logging()
    null_us = _request_us(NullTelemetry(), None)
    rows = {
        "spans off": (False, None),
        "spans on, caller not traced": (True, None),
        "spans on, not sampled": (True, UNSAMPLED),
        "spans on, sampled": (True, SAMPLED),
    }
    for name, (has_spans, headers) in rows.items():
        recorder = _recorder(has_spans=has_spans)
        with_log = _request_us(recorder, headers) - null_us
        logging.getLogger().setLevel(logging.WARNING)
        without_log = _request_us(recorder, headers) - null_us
        logging.getLogger().setLevel(logging.INFO)
        recorder.shutdown()
        print(
            f"{name:<30}{with_log:8.1f} us a request, of that the log line {with_log - without_log:6.1f}",
            file=out,
        )
    print(f"{'yardstick: one SDK span':<30}{_yardstick_us():8.1f} us", file=out)
    print(f"{'one engine step':<30}{_step_us(_recorder(has_spans=False)):8.1f} us", file=out)
    out.flush()


if __name__ == "__main__":
    main()
