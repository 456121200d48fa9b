"""Collectors of spans on a free port of this machine: real OTLP servers, in every mood."""

from __future__ import annotations

import gzip
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import grpc  # type: ignore[import-untyped]  # published without types
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.logs.v1.logs_service_pb2_grpc import (
    LogsServiceServicer,
    add_LogsServiceServicer_to_server,  # pyright: ignore[reportUnknownVariableType]  # generated, untyped
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,  # pyright: ignore[reportUnknownVariableType]  # generated, untyped
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
    from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Verdict(Enum):
    """What a server says to a message."""

    TAKEN = (grpc.StatusCode.OK, 200)
    REFUSED = (grpc.StatusCode.INVALID_ARGUMENT, 400)
    # Both ask the sender to come again.
    LATER = (grpc.StatusCode.UNAVAILABLE, 503)

    def __init__(self, code: grpc.StatusCode, status: int) -> None:
        self.code = code
        self.status = status


class Collector:
    """What a server received.

    refuses: it says no. is_stuck: it answers when `release` is called. late_s: it answers so much later.
    unavailable: it says to so many messages first that it has no time now. rejected: of every message so many
    spans are not kept, and the answer says so. keeps_logs: it is a collector of log records too.
    """

    def __init__(
        self,
        *,
        refuses: bool = False,
        is_stuck: bool = False,
        late_s: float = 0.0,
        unavailable: int = 0,
        rejected: int = 0,
        keeps_logs: bool = False,
    ) -> None:
        self.refuses = refuses
        self.keeps_logs = keeps_logs
        self.unavailable = unavailable
        self.rejected = rejected
        self._late_s = late_s
        self._end = Event()
        self._go = Event()
        if not is_stuck:
            self._go.set()
        self.asked = Event()
        self.requests: list[ExportTraceServiceRequest] = []
        # The framework sends log records to the same address.
        self.logs: list[ExportLogsServiceRequest] = []
        self.endpoint = ""

    def take(self, request: ExportTraceServiceRequest) -> Verdict:
        """What becomes of a message with spans."""
        self.asked.set()
        self._go.wait()
        self._end.wait(self._late_s)
        if self.refuses:
            return Verdict.REFUSED
        if self.unavailable:
            self.unavailable -= 1
            return Verdict.LATER
        self.requests.append(request)
        return Verdict.TAKEN

    def answer(self) -> ExportTraceServiceResponse:
        """To a message that was taken."""
        answer = ExportTraceServiceResponse()
        if self.rejected:
            answer.partial_success.rejected_spans = self.rejected
            answer.partial_success.error_message = "too many attributes"
        return answer

    def release(self) -> None:
        """Answer whoever waits, now and from now on."""
        self._go.set()
        self._end.set()

    @property
    def spans(self) -> dict[str, Span]:
        """By name; two of a name fail the test that sent them."""
        found: dict[str, Span] = {}
        for span in self.all_spans:
            assert span.name not in found, f"two spans are called {span.name}"
            found[span.name] = span
        return found

    @property
    def all_spans(self) -> list[Span]:
        """In the order of arrival."""
        return [
            span
            for request in tuple(self.requests)
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    @property
    def resource(self) -> dict[str, Any]:
        """Attributes of the one resource all spans came from."""
        (resource,) = {
            tuple(sorted(attributes_of(found.resource.attributes).items()))
            for request in self.requests
            for found in request.resource_spans
        }
        return dict(resource)


def attributes_of(pairs: Any) -> dict[str, Any]:
    """OTLP's key-value list as a dictionary."""
    listed: list[KeyValue] = list(pairs)
    return {pair.key: _value_of(pair.value) for pair in listed}


def _value_of(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value_of(item) for item in value.array_value.values]
    return getattr(value, str(kind))


@contextmanager
def grpc_collector(**mood: Any) -> Generator[Collector, None, None]:
    """An OTLP/gRPC server."""
    collector = Collector(**mood)

    class Traces(TraceServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
            verdict = collector.take(request)
            if verdict is not Verdict.TAKEN:
                context.abort(verdict.code, "not today")
            return collector.answer()

    class Logs(LogsServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
            del context
            collector.logs.append(request)
            return ExportLogsServiceResponse()

    server = grpc.server(ThreadPoolExecutor(max_workers=4))
    add_TraceServiceServicer_to_server(Traces(), server)
    if collector.keeps_logs:
        add_LogsServiceServicer_to_server(Logs(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    collector.endpoint = f"http://127.0.0.1:{port}"
    try:
        yield collector
    finally:
        collector.release()
        server.stop(None).wait()


@contextmanager
def http_collector(**mood: Any) -> Generator[Collector, None, None]:
    """An OTLP/HTTP server."""
    collector = Collector(**mood)

    class Handler(BaseHTTPRequestHandler):
        # Real ones keep connections, and exporters count on it.
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            if self.path == "/v1/traces":
                verdict = collector.take(ExportTraceServiceRequest.FromString(body))
                self._say(verdict, collector.answer())
            elif self.path == "/v1/logs" and collector.keeps_logs:
                collector.logs.append(ExportLogsServiceRequest.FromString(body))
                self._say(Verdict.TAKEN, ExportLogsServiceResponse())
            else:
                self._say(Verdict.REFUSED, None)

        def _say(self, verdict: Verdict, taken: Any) -> None:
            answer = taken.SerializeToString() if verdict is Verdict.TAKEN else b"not today"
            self.send_response(verdict.status)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    collector.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield collector
    finally:
        collector.release()
        server.shutdown()
        server.server_close()
        thread.join()
