"""One trace per request, from the client's span to the last hop: real processes, a real collector.

Field reports S13, A50, A56, A57 and A88: hops that came as new roots, sampling flags lost on the way to the
engine, trace ids used as engine ids, ids that cannot be joined.
"""

from __future__ import annotations

import json
import secrets
import sys
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from tests.e2e.traced import (
    COLLECTORS,
    FRAMEWORK,
    HOPS,
    Tree,
    ask,
    asking,
    events_of,
    exporting_to,
    traceparent,
    tree_of,
    wait_tree,
)
from tests.e2e.waiting import wait_until
from tests.service.telemetry.collectors import attributes_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from opentelemetry.proto.trace.v1.trace_pb2 import Span

    from tests.e2e.engines import Served
    from tests.e2e.stacks import Stack
    from tests.service.telemetry.collectors import Collector

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

TELLING = (sys.executable, "-m", "tests.doubles.telling_worker")
SPAN_ID = "1122334455667788"
UNSET, ERROR = 0, 2
# Two processes read the machine's clock, one of them once a request.
CLOCK_NS = 5_000_000


class Place:
    """One stack, its collector, and what its engine was given."""

    def __init__(self, stack: Stack, collector: Collector, told: Path) -> None:
        self.stack = stack
        self.collector = collector
        self._told = told

    def wait(self, trace_id: str, *ours: str, requests: int = 1) -> Tree:
        (worker,) = self.stack.workers
        return wait_tree(
            self.collector, trace_id, *ours, requests=requests, log=worker.log, poke=worker.status
        )

    def engine_headers(self, trace_id: str) -> list[str]:
        """The ``traceparent`` of everything the engine got of this trace, in order."""
        # There from the first request on that reached the engine.
        text = self._told.read_text(encoding="utf-8") if self._told.exists() else ""
        lines = [json.loads(line) for line in text.splitlines()]
        found = [line["headers"].get("traceparent", "") for line in lines]
        return [header for header in found if trace_id in header]


@pytest.fixture(scope="module", params=sorted(COLLECTORS))
def place(
    request: pytest.FixtureRequest, served: Served, word_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    """One worker at 10 ms a step whose engine tells what it is given; everybody traces."""
    folder = tmp_path_factory.mktemp("traces")
    with COLLECTORS[request.param]() as collector:
        environ = {**exporting_to(collector, request.param), "TOLD_FILE": str(folder / "told")}
        with served.stack(folder, word_model, step_ms=10, environ=environ, program=TELLING) as stack:
            yield Place(stack, collector, folder / "told")


@pytest.fixture
def trace_id() -> str:
    """A new one for each test."""
    return secrets.token_hex(16)


def check_framework(tree: Tree, caller: str) -> Span:
    """From the client's span down to the call of ``generate()``; returns that one."""
    above = caller
    for name in FRAMEWORK:
        assert tree.one(name).parent_span_id.hex() == above, name
        above = tree.one(name).span_id.hex()
    return tree.one("engine.generate")


def check_hops(hops: list[Span]) -> None:
    """In order, each beginning where the one before it ended."""
    for before, after in pairwise(hops):
        assert after.start_time_unix_nano == before.end_time_unix_nano


def check_ids(tree: Tree) -> None:
    """Every span of ours joins Dynamo's id of the request and the engine's."""
    dynamo_id = tree.told("handle_payload")["request_id"]
    for span in tree.spans:
        if span.name.startswith("actor."):
            told = attributes_of(span.attributes)
            assert told["actor.context_id"] == dynamo_id, span.name
            assert isinstance(told["actor.engine_id"], int)


def test_ours_say_whose_they_are(place: Place, trace_id: str) -> None:
    """The resource has Dynamo's namespace, and this process by the name that its stories have."""
    ask(place.stack, traceparent(trace_id, SPAN_ID), max_tokens=1)
    place.wait(trace_id, *HOPS)
    (resource,) = {
        tuple(sorted(attributes_of(of_one.resource.attributes).items()))
        for request in tuple(place.collector.requests)
        for of_one in request.resource_spans
        if any(scope.scope.name == "dynamo-actor-worker" for scope in of_one.scope_spans)
    }
    told = dict(resource)
    assert (told["service.name"], told["service.namespace"]) == ("dynamo", "dynamo")
    (worker,) = place.stack.workers
    named = worker.control("trace", {"which": "last"})["worker"]
    assert told["service.instance.id"] == named["instance_id"]


def test_hops_are_siblings_below_the_frameworks_span(place: Place, trace_id: str) -> None:
    """One tree, no new root; the hops follow each other, from that span's beginning to the answer's end."""
    ask(place.stack, traceparent(trace_id, SPAN_ID), max_tokens=5)
    tree = place.wait(trace_id, *HOPS)
    generate = check_framework(tree, SPAN_ID)
    hops = tree.below(generate)
    assert [hop.name for hop in hops] == list(HOPS)
    check_hops(hops)
    check_ids(tree)
    assert generate.start_time_unix_nano <= hops[0].start_time_unix_nano + CLOCK_NS
    # Not that span's own end: ai-dynamo 1.4.2 writes the moment at which it was last entered.
    assert hops[-1].end_time_unix_nano <= tree.one("http-request").end_time_unix_nano + CLOCK_NS
    assert {hop.status.code for hop in hops} == {UNSET}


def test_a_served_request_is_told_in_full(served: Served, place: Place, trace_id: str) -> None:
    """What was asked, what came of it, and the moments between."""
    options = {"temperature": 0.5, "top_p": 0.75, "seed": 7, "frequency_penalty": 0.25, "n": 2}
    ask(place.stack, traceparent(trace_id, SPAN_ID), max_tokens=5, **options)
    tree = place.wait(trace_id, *HOPS)
    execute, stream = tree.told("actor.execute"), tree.told("actor.stream")
    both = {
        "gen_ai.operation.name": "text_completion",
        "gen_ai.provider.name": f"dynamo_actor.{served.name}",
        "gen_ai.request.model": place.stack.model(),
    }
    asked = {
        "gen_ai.request.max_tokens": 5,
        "gen_ai.request.choice.count": 2,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 0.75,
        "gen_ai.request.seed": 7,
        "gen_ai.request.frequency_penalty": 0.25,
        "gen_ai.usage.input_tokens": 3,
    }
    answered = {
        "gen_ai.usage.output_tokens": 10,
        "gen_ai.response.finish_reasons": ["length", "length"],
        "actor.outcome": "completed",
    }
    assert {name: execute.get(name) for name in both | asked} == both | asked
    assert {name: stream.get(name) for name in both | answered} == both | answered
    waiting = {"actor.waiting_ms": execute["actor.waiting_ms"]}
    assert events_of(tree.one("actor.execute")) == [("submitted", waiting), ("first_token", {})]


def test_what_nobody_samples_is_nowhere(place: Place, trace_id: str) -> None:
    """Flags 00 stay 00 down to the engine, and leave no span of ours or the framework's."""
    ask(place.stack, traceparent(trace_id, SPAN_ID, is_sampled=False), max_tokens=3)
    (header,) = place.engine_headers(trace_id)
    assert header.endswith("-00")
    # A later request's spans are there: those before it would be too.
    later = secrets.token_hex(16)
    ask(place.stack, traceparent(later, SPAN_ID), max_tokens=3)
    place.wait(later, *HOPS)
    assert tree_of(place.collector, trace_id).spans == []


def test_the_engine_works_below_execute(place: Place, trace_id: str) -> None:
    """Its headers name that hop's span, with the caller's trace and flags."""
    ask(place.stack, traceparent(trace_id, SPAN_ID), max_tokens=3)
    span_id = place.wait(trace_id, *HOPS).one("actor.execute").span_id.hex()
    assert place.engine_headers(trace_id) == [f"00-{trace_id}-{span_id}-01"]


def test_two_requests_of_one_trace_stay_apart(place: Place, trace_id: str) -> None:
    """At once, below two spans of one client: two ids of the engine, two trees, nothing mixed."""
    callers = ["000000000000000a", "000000000000000b"]
    with (
        asking(place.stack, traceparent(trace_id, callers[0]), max_tokens=20) as first,
        asking(place.stack, traceparent(trace_id, callers[1]), max_tokens=20) as second,
    ):
        answers = [first.read(), second.read()]
    assert all(b"[DONE]" in answer for answer in answers)
    tree = place.wait(trace_id, *HOPS, *HOPS, requests=2)
    assert {span.parent_span_id.hex() for span in tree.all("http-request")} == set(callers)
    engine_ids = set[int]()
    for generate in tree.all("engine.generate"):
        hops = tree.below(generate)
        assert [hop.name for hop in hops] == list(HOPS)
        (engine_id,) = {attributes_of(hop.attributes)["actor.engine_id"] for hop in hops}
        engine_ids.add(engine_id)
    assert len(engine_ids) == 2
    assert len(set(place.engine_headers(trace_id))) == 2


def test_a_client_without_a_trace_gets_one(place: Place) -> None:
    """The frontend begins it; ours lie in it as in any other."""
    known = {span.trace_id for span in place.collector.all_spans}
    ask(place.stack, max_tokens=3)

    def new() -> set[bytes]:
        return {span.trace_id for span in place.collector.all_spans} - known

    wait_until(new, "no new trace came", 30.0)
    (trace,) = new()
    tree = place.wait(trace.hex(), *HOPS)
    check_framework(tree, "")
    assert [hop.name for hop in tree.below(tree.one("engine.generate"))] == list(HOPS)


def test_a_client_that_leaves_is_no_error(place: Place, trace_id: str) -> None:
    """The stream ends with its reason, at the time it was heard, and every span is closed."""
    with asking(place.stack, traceparent(trace_id, SPAN_ID), max_tokens=1500) as response:
        response.read(600)
    tree = place.wait(trace_id, "actor.abort", "actor.cancel", *HOPS)
    generate = check_framework(tree, SPAN_ID)
    check_ids(tree)
    stream, cancel = tree.one("actor.stream"), tree.one("actor.cancel")
    assert stream.status.code == UNSET
    told = tree.told("actor.stream")
    assert (told["actor.outcome"], told["cancelled"]) == ("cancelled", True)
    assert "error.type" not in told
    assert events_of(stream) == [("cancelled", {"actor.cancel.reason": "client"})]
    (event,) = stream.events
    assert event.time_unix_nano == cancel.start_time_unix_nano <= cancel.end_time_unix_nano
    assert cancel.end_time_unix_nano == stream.end_time_unix_nano
    assert tree.above(cancel) == generate


def test_a_stop_string_is_no_error(place: Place, trace_id: str) -> None:
    """The frontend has seen enough: an outcome of its own."""
    ask(place.stack, traceparent(trace_id, SPAN_ID), max_tokens=1500, stop=["w1005"])
    tree = place.wait(trace_id, "actor.abort", "actor.cancel", *HOPS)
    assert tree.one("actor.stream").status.code == UNSET
    assert tree.told("actor.stream")["actor.outcome"] == "stopped_by_frontend"


def test_a_refused_request_ends_where_it_was_refused(place: Place, trace_id: str) -> None:
    """Two hops, an error by its kind, nothing of what the caller wrote."""
    ask(place.stack, traceparent(trace_id, SPAN_ID), max_tokens=3, guided_regex="[a-z]+")
    tree = place.wait(trace_id, "actor.intake", "actor.resolve")
    check_framework(tree, SPAN_ID)
    check_ids(tree)
    resolve = tree.one("actor.resolve")
    assert (resolve.status.code, resolve.status.message) == (ERROR, "InvalidRequest")
    assert tree.told("actor.resolve")["error.type"] == "InvalidRequest"
    assert place.engine_headers(trace_id) == []


def test_a_passed_deadline_is_an_error_with_its_moment(place: Place, trace_id: str) -> None:
    """On the hop that it cut short."""
    headers = {**traceparent(trace_id, SPAN_ID), "x-dynamo-meta-deadline-ms": "200"}
    ask(place.stack, headers, max_tokens=1500)
    tree = place.wait(trace_id, "actor.abort", "actor.cancel", *HOPS)
    stream, arrived_ns = tree.one("actor.stream"), tree.one("actor.intake").start_time_unix_nano
    assert (stream.status.code, stream.status.message) == (ERROR, "DeadlineExceeded")
    assert events_of(stream) == [("deadline", {})]
    (event,) = stream.events
    assert event.time_unix_nano - arrived_ns >= 200_000_000
    assert tree.told("actor.cancel")["actor.cancel.reason"] == "deadline"


@pytest.mark.parametrize("protocol", sorted(COLLECTORS))
def test_both_lives_of_a_moved_request_are_one_trace(
    served: Served, word_model: Path, tmp_path: Path, protocol: str
) -> None:
    """A drain in mid-stream: the second life lies beside the first, and names it as the framework does."""
    trace_id = secrets.token_hex(16)
    with COLLECTORS[protocol]() as collector:
        environ = exporting_to(collector, protocol)
        words = ("--drain-timeout", "1")
        with served.stack(tmp_path, word_model, *words, step_ms=20, workers=2, environ=environ) as stack:
            with asking(stack, traceparent(trace_id, SPAN_ID), max_tokens=120) as response:
                response.read(600)
                (first,) = [worker for worker in stack.workers if worker.status()["in_flight"]]
                first.child.ask_to_stop()
                assert b"[DONE]" in response.read()
            assert first.child.wait(20) == 0
            tree = wait_moved(collector, trace_id)
    check_both_lives(tree)


def wait_moved(collector: Collector, trace_id: str) -> Tree:
    """One request of the frontend, two of workers."""

    def is_whole() -> bool:
        tree = tree_of(collector, trace_id)
        return len(tree.all("engine.generate")) == 2 and len(tree.all("actor.stream")) == 2

    wait_until(is_whole, lambda: [span.name for span in tree_of(collector, trace_id).spans], 30.0)
    return tree_of(collector, trace_id)


def check_both_lives(tree: Tree) -> None:
    """Each life has its hops below its own call; the second links to the first one's call."""
    before, after = tree.all("engine.generate")
    assert [span.name for span in tree.below(before)][:4] == list(HOPS)
    assert [span.name for span in tree.below(after)] == list(HOPS)
    one, other = (
        {hop.name: hop for hop in tree.below(generate) if hop.name in HOPS} for generate in (before, after)
    )
    ended = attributes_of(one["actor.stream"].attributes)
    assert (ended["actor.outcome"], ended["actor.is_moved"]) == ("interrupted", True)
    assert (one["actor.stream"].status.code, one["actor.stream"].status.message) == (ERROR, "EngineShutdown")
    assert events_of(one["actor.stream"]) == [("cancelled", {"actor.cancel.reason": "drain"})]
    link = before.trace_id, before.span_id
    for span in (after, other["actor.intake"]):
        assert [(found.trace_id, found.span_id) for found in span.links] == [link], span.name
        told = attributes_of(span.attributes)
        assert (told["migration_trace_id"], told["migration_span_id"]) == tuple(part.hex() for part in link)
    assert not one["actor.intake"].links
    ids = {attributes_of(hops["actor.intake"].attributes)["actor.context_id"] for hops in (one, other)}
    assert len(ids) == 1


def test_a_worker_that_stops_sends_what_it_has(served: Served, word_model: Path, tmp_path: Path) -> None:
    """Spans that wait for their minute are sent on the way out."""
    trace_id = secrets.token_hex(16)
    with COLLECTORS["grpc"]() as collector:
        environ = exporting_to(collector, "grpc", delay_ms=60_000)
        with served.stack(tmp_path, word_model, step_ms=10, environ=environ) as stack:
            ask(stack, traceparent(trace_id, SPAN_ID), max_tokens=3)
            assert tree_of(collector, trace_id).ours == []
            stack.workers[0].child.ask_to_stop()
            assert stack.workers[0].child.wait(20) == 0
        assert tree_of(collector, trace_id).ours == sorted(HOPS)
