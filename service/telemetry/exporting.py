"""From finished spans to the collector: bounded, in a thread of its own, every loss counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock, Thread
from typing import TYPE_CHECKING

from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from service.options.errors import ConfigError, Problem

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

    from service.telemetry.trace_settings import Protocol, TraceSettings

# What a shutdown waits for the last spans to be taken, and then for the exporter to let go. Together 2 s.
FLUSH_S = 1.5
LET_GO_S = 0.5

OnLost = Callable[[str, int], None]
"""Told the reason (one of `metrics.SPAN_LOSSES`) and how many spans; from any thread."""


def build_exporter(protocol: Protocol) -> SpanExporter:
    """The SDK's OTLP exporter. It reads its endpoint and the rest from the environment.

    Raises ConfigError for what it cannot follow there.
    """
    try:
        return _exporter(protocol)
    except Exception as exc:  # the library has no error of its own for this
        raise ConfigError([Problem("OTEL_EXPORTER_OTLP_*", None, f"the exporter says: {exc}")]) from exc


def _exporter(protocol: Protocol) -> SpanExporter:
    # Imported only when spans are on: grpc alone costs a quarter of a second.
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

        return OTLPSpanExporter()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
        OTLPSpanExporter as HttpSpanExporter,
    )

    return HttpSpanExporter()


class Pipeline:
    """A queue of at most ``queue_spans`` spans in front of an exporter that may be slow, or gone.

    Every span given to `send` is delivered or lost, and each loss is told once: send = delivered + lost.
    """

    def __init__(self, settings: TraceSettings, exporter: SpanExporter, on_lost: OnLost) -> None:
        self._most = settings.queue_spans
        self._on_lost = on_lost
        self._counted = _CountedExporter(exporter, on_lost)
        self._processor = BatchSpanProcessor(
            self._counted,
            max_queue_size=settings.queue_spans,
            schedule_delay_millis=settings.delay_ms,
            max_export_batch_size=settings.batch_spans,
        )
        self._accepted = 0
        self._is_open = True

    def send(self, spans: Sequence[ReadableSpan]) -> None:
        """Event loop: queue these together, or none of them when there is no room. Never waits."""
        if not self._is_open:
            self._on_lost("shutdown", len(spans))
        elif self._accepted - self._counted.taken + len(spans) > self._most:
            self._on_lost("queue_full", len(spans))
        else:
            self._accepted += len(spans)
            for span in spans:
                self._processor.on_end(span)

    def shutdown(self) -> None:
        """Deliver what waits, for at most 2 s; what is left then counts as lost. Idempotent."""
        if not self._is_open:
            return
        self._is_open = False
        # The SDK waits for 30 s and cannot be told otherwise; so it waits elsewhere.
        flush = Thread(target=self._processor.shutdown, name="span-flush", daemon=True)
        flush.start()
        flush.join(FLUSH_S)
        if flush.is_alive():
            until_s = time.monotonic() + LET_GO_S
            let_go = Thread(target=self._counted.shutdown, name="span-let-go", daemon=True)
            let_go.start()
            let_go.join(LET_GO_S)
            flush.join(max(0.0, until_s - time.monotonic()))
        left = self._counted.close(self._accepted)
        if left:
            self._on_lost("shutdown", left)


class _CountedExporter(SpanExporter):
    """Counts what the exporter inside took, delivered and lost. `export` runs in the processor's thread."""

    def __init__(self, inner: SpanExporter, on_lost: OnLost) -> None:
        self._inner = inner
        self._on_lost = on_lost
        self._lock = Lock()
        self._is_shut_down = False
        self._is_closed = False
        self._settled = 0
        # Spans that have left the queue.
        self.taken = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Never raises: an exporter that does has not delivered, and listeners count their own bugs."""
        self.taken += len(spans)
        try:
            result = self._inner.export(spans)
        except Exception:  # the library inside logs what it was; here it is one more lost batch
            result = SpanExportResult.FAILURE
        with self._lock:
            if self._is_closed:
                return result
            self._settled += len(spans)
        if result is not SpanExportResult.SUCCESS:
            with suppress(Exception):
                self._on_lost("export_failed", len(spans))
        return result

    def shutdown(self) -> None:
        """Any thread, any number of times; the exporter inside is told once."""
        with self._lock:
            if self._is_shut_down:
                return
            self._is_shut_down = True
        self._inner.shutdown()

    def close(self, accepted: int) -> int:
        """From now on nothing is counted any more. How many of ``accepted`` spans have no end yet."""
        with self._lock:
            self._is_closed = True
            return accepted - self._settled
