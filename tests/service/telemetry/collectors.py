"""Collectors of spans on a free port of this machine: real OTLP servers, in every mood."""

from __future__ import annotations

import gzip
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import grpc  # type: ignore[import-untyped]  # published without types
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


class Collector:
    """What a server received.

    refuses: it says no. is_stuck: it answers when `release` is called. late_s: it answers so much later.
    """

    def __init__(self, *, refuses: bool = False, is_stuck: bool = False, late_s: float = 0.0) -> None:
        self.refuses = refuses
        self._late_s = late_s
        self._end = Event()
        self._go = Event()
        if not is_stuck:
            self._go.set()
        self.asked = Event()
        self.requests: list[ExportTraceServiceRequest] = []
        self.endpoint = ""

    def take(self, request: ExportTraceServiceRequest) -> bool:
        """Whether the request was accepted."""
        self.asked.set()
        self._go.wait()
        self._end.wait(self._late_s)
        if not self.refuses:
            self.requests.append(request)
        return not self.refuses

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
            for request in self.requests
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

    class Servicer(TraceServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
            if not collector.take(request):
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, "not today")
            return ExportTraceServiceResponse()

    server = grpc.server(ThreadPoolExecutor(max_workers=2))
    add_TraceServiceServicer_to_server(Servicer(), server)
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
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            is_right = self.path == "/v1/traces" and collector.take(
                ExportTraceServiceRequest.FromString(body)
            )
            answer = ExportTraceServiceResponse().SerializeToString() if is_right else b"not today"
            self.send_response(200 if is_right else 400)
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
