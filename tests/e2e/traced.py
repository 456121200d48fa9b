"""Requests of clients that trace, and the tree of spans that a collector got of each."""

from __future__ import annotations

import http.client
import json
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.e2e.waiting import wait_until
from tests.service.telemetry.collectors import attributes_of, grpc_collector, http_collector
from tests.service.telemetry.conftest import export_to

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from opentelemetry.proto.trace.v1.trace_pb2 import Span

    from tests.e2e.stacks import Stack
    from tests.service.telemetry.collectors import Collector

COLLECTORS = {"grpc": grpc_collector, "http/protobuf": http_collector}
# Of the framework, from the frontend to the call of our generate(); their parents in this order.
FRAMEWORK = ("http-request", "router.route_request", "handle_payload", "engine.generate")
HOPS = ("actor.intake", "actor.resolve", "actor.execute", "actor.stream")


def exporting_to(collector: Collector, protocol: str, delay_ms: int = 100) -> dict[str, str]:
    """The variables with which frontend and worker send their spans there, at most so much later."""
    return {**export_to(collector.endpoint, protocol), "OTEL_BSP_SCHEDULE_DELAY": str(delay_ms)}


def traceparent(trace_id: str, span_id: str, *, is_sampled: bool = True) -> dict[str, str]:
    """What a client that traces sends."""
    return {"traceparent": f"00-{trace_id}-{span_id}-{is_sampled:02x}"}


@contextmanager
def asking(
    stack: Stack, headers: Mapping[str, str] | None = None, **options: Any
) -> Generator[http.client.HTTPResponse]:
    """A streamed chat request. Leaving the block before the answer is read hangs up."""
    body = {
        "model": stack.model(),
        "messages": [{"role": "user", "content": "w5 w6 w7"}],
        "stream": True,
        **options,
    }
    connection = http.client.HTTPConnection("127.0.0.1", stack.http_port, timeout=60)
    try:
        sent = {"Content-Type": "application/json", **(headers or {})}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), sent)
        yield connection.getresponse()
    finally:
        connection.close()


def ask(stack: Stack, headers: Mapping[str, str] | None = None, **options: Any) -> str:
    """The whole answer, whatever its status."""
    with asking(stack, headers, **options) as response:
        return response.read().decode()


class Tree:
    """All spans of one trace."""

    def __init__(self, spans: list[Span]) -> None:
        self.spans = spans

    def all(self, name: str) -> list[Span]:
        """In the order of their beginnings."""
        return sorted(
            (span for span in self.spans if span.name == name), key=lambda span: span.start_time_unix_nano
        )

    def one(self, name: str) -> Span:
        """The only one of that name."""
        (span,) = self.all(name)
        return span

    def told(self, name: str) -> dict[str, Any]:
        """Attributes of the only one of that name."""
        return attributes_of(self.one(name).attributes)

    def below(self, parent: Span) -> list[Span]:
        """Its children, in the order of their beginnings; a span without length before one that goes on."""
        return sorted(
            (span for span in self.spans if span.parent_span_id == parent.span_id),
            key=lambda span: (span.start_time_unix_nano, span.end_time_unix_nano),
        )

    def above(self, span: Span) -> Span | None:
        """Its parent, where that is in the tree."""
        return next((other for other in self.spans if other.span_id == span.parent_span_id), None)

    @property
    def ours(self) -> list[str]:
        """Names of this worker's spans, sorted."""
        return sorted(span.name for span in self.spans if span.name.startswith("actor."))


def events_of(span: Span) -> list[tuple[str, dict[str, Any]]]:
    """Name and attributes, in the order of time."""
    events = sorted(span.events, key=lambda event: event.time_unix_nano)
    return [(event.name, attributes_of(event.attributes)) for event in events]


def tree_of(collector: Collector, trace_id: str) -> Tree:
    """What has come of it so far."""
    return Tree([span for span in collector.all_spans if span.trace_id.hex() == trace_id])


def wait_tree(
    collector: Collector,
    trace_id: str,
    *ours: str,
    requests: int = 1,
    log: Callable[[], str] = str,
    poke: Callable[[], object] = str,
) -> Tree:
    """Until the framework's spans of so many requests, and exactly these of ours, have come.

    log: what the worker says, for the text of a failure. poke: makes the worker enter Python. What the
    framework drops elsewhere it lets go of then, its call's context among it, whose span ends with it: on a
    worker that nobody asks anything, nor scrapes, that span waits.
    """
    wanted = Counter(dict.fromkeys(FRAMEWORK, requests)) + Counter(ours)

    def names() -> Counter[str]:
        return Counter(span.name for span in tree_of(collector, trace_id).spans)

    def is_whole() -> bool:
        poke()
        return wanted <= names()

    def what() -> str:
        return f"{wanted - names()} is missing in {names()}\n{log()}"

    wait_until(is_whole, what, 30.0, every_s=0.05)
    tree = tree_of(collector, trace_id)
    assert tree.ours == sorted(ours)
    return tree
