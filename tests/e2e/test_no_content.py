"""What clients write and what the model answers is in no span, no metric, no log line and no kept story.

One request of each outcome goes through a real frontend to real workers, with a marker in every field that a
client may fill; then everything that left the workers is searched for it and for lists of ids. The frontend
is not ours: it writes the texts of errors, which quote what was refused, into its own log and span
(docs/limits.md).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.engines import Served
from tests.e2e.stacks import Stack, Worker
from tests.e2e.traced import ask, asking, exporting_to
from tests.e2e.waiting import wait_until
from tests.faults.stalling import DEEP_TOKENS, stall
from tests.fuzz.values import SECRET
from tests.fuzz.workers import shows_content, write_tiny_model
from tests.service.telemetry.collectors import Collector, attributes_of, grpc_collector

if TYPE_CHECKING:
    from pathlib import Path

    from opentelemetry.proto.trace.v1.trace_pb2 import Span

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

OUTCOMES = {
    "completed",
    "stopped_by_frontend",
    "cancelled",
    "deadline",
    "stalled",
    "failed",
    "interrupted",
    "refused",
}
TORCH, PACED = "with-a-model", "without-one"
QUOTING = "quoting=tests.e2e.quoting_processor:Quoting"
# As fast as it is read, a token a chunk, so long that a reader who stops is felt.
ENDLESS = ("--max-seq-len", "200000", "--chunk-tokens", "1", "--stall-timeout", "1")
# Headers of a client that reach a worker, and some that do not.
HEADERS = {
    "x-dynamo-meta-note": SECRET,
    "x-dynamo-session-id": SECRET,
    "x-tenant-id": SECRET,
    "baggage": f"note={SECRET}",
}
SCHEMA = {"type": "object", "properties": {SECRET: {"const": SECRET}}, "required": [SECRET]}
# A marker in every field of a chat that takes a text; the ids are of no other field.
FIELDS: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": f"{SECRET} w5 w6 w7 w8"},
        {"role": "user", "name": SECRET, "content": f"say {SECRET} w5 w6 w7 w8"},
    ],
    "user": SECRET,
    "metadata": {SECRET: SECRET},
    "logit_bias": {"77": 1.0, "78": 1.0, "79": 1.0},
    "chat_template_kwargs": {"note": SECRET},
    "tools": [
        {"type": "function", "function": {"name": SECRET, "description": SECRET, "parameters": SCHEMA}}
    ],
    "tool_choice": "none",
    "stop_token_ids": [301, 302, 303],
    "nvext": {"cache_salt": SECRET, "extra_fields": [SECRET], "annotations": [SECRET]},
}


@dataclass
class Outputs:
    """Everything that left the workers, as lines of text. outcomes: those that their books have."""

    spans: list[str] = field(default_factory=list)
    exported_logs: list[str] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)
    metrics: list[str] = field(default_factory=list)
    stories: list[str] = field(default_factory=list)
    outcomes: set[str] = field(default_factory=set)

    def named(self) -> dict[str, list[str]]:
        """By what they are."""
        return {
            "spans": self.spans,
            "exported logs": self.exported_logs,
            "logs": self.logs,
            "metrics": self.metrics,
            "stories": self.stories,
        }


@pytest.fixture(scope="module")
def outputs(served: Served, word_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Outputs:
    """All requests are over, and the workers are gone: nothing more will be written."""
    folder = tmp_path_factory.mktemp("content")
    tiny = write_tiny_model(folder / "tiny")
    words_of = {
        TORCH: served.words_with_weights(tiny, "--logits-processor", QUOTING),
        PACED: [*served.words(word_model, 0), *ENDLESS],
    }
    found = Outputs()
    with grpc_collector(keeps_logs=True) as collector:
        environ = {**exporting_to(collector, "grpc"), "DYN_LOGGING_JSONL": "1", **served.environ(0)}
        stack = Stack(folder / "stack", [], workers=0, environ=environ, program=served.program)
        try:
            for name, options in words_of.items():
                words = [*options, "--served-model-name", name]
                words += ["--endpoint", f"dyn://dynamo.{name}.generate"]
                stack.workers.append(stack.add_worker(words, {"OTEL_SERVICE_NAME": name}))
            stack.wait_ready()
            wait_until(lambda: set(stack.client.models()) == {TORCH, PACED}, stack.client.models, 60.0)
            ask_everything(stack)
            for worker in stack.workers:
                read_out(worker, found)
        finally:
            stack.stop()
        read_collector(collector, found)
    found.logs += [line for worker in stack.workers for line in worker.log().splitlines()]
    return found


def ask_everything(stack: Stack) -> None:
    """One request of each outcome at least; our own lines from DEBUG up."""
    torch, paced = stack.workers
    for worker in stack.workers:
        worker.control("log_level", {"level": "debug"})
    ask_torch(stack, torch)
    ask_paced(stack, paced)


def ask_torch(stack: Stack, worker: Worker) -> None:
    """Served in every way that shows content to the engine, refused in every way, failed."""

    def outcome_of(headers: dict[str, str] | None = None, **options: Any) -> str:
        before = worker.status()["outcomes"]
        ask(stack, {**HEADERS, **(headers or {})}, **{**FIELDS, "model": TORCH, "max_tokens": 8, **options})
        after = worker.wait_status(lambda state: state["live"] == 0)["outcomes"]
        (changed,) = [name for name, count in after.items() if count != before[name]]
        return str(changed)

    def annotated(text: str) -> dict[str, Any]:
        return {"annotations": [f"logits-processor:{text}"]}

    schema = {"type": "json_schema", "json_schema": {"name": SECRET, "schema": SCHEMA}}
    assert outcome_of(logprobs=True, top_logprobs=3, stop=[SECRET]) == "completed"
    assert outcome_of(nvext={"token_data": [101, 102, 103, 104]}) == "completed"
    assert outcome_of(guided_choice=[SECRET, f"{SECRET}!"]) == "completed"
    assert outcome_of(guided_regex=f"({SECRET})+", max_tokens=30) == "completed"
    assert outcome_of(response_format=schema, max_tokens=60) == "completed"
    assert outcome_of(guided_regex=f"({SECRET})+", stop=[SECRET], max_tokens=150) == "stopped_by_frontend"
    assert outcome_of(guided_grammar=f"root ::= {SECRET}") == "refused"
    assert outcome_of(guided_regex=f"({SECRET}") == "refused"
    assert outcome_of(nvext=annotated(SECRET)) == "refused"
    assert outcome_of(nvext=annotated(f'quoting={{"{SECRET}": "{SECRET}"}}')) == "refused"
    assert outcome_of({"x-dynamo-meta-deadline-ms": SECRET}) == "refused"
    assert outcome_of(nvext=annotated(f'quoting={{"note": "{SECRET}"}}')) == "failed"


def ask_paced(stack: Stack, worker: Worker) -> None:
    """Too late, left, stalled, and cut off by a drain."""
    body = {**FIELDS, "model": PACED, "max_tokens": DEEP_TOKENS, "stream": True}

    def wait_for(outcome: str) -> None:
        worker.wait_status(lambda state: state["outcomes"][outcome] and state["live"] == 0, 60.0)

    ask(stack, {**HEADERS, "x-dynamo-meta-deadline-ms": "200"}, **body)
    wait_for("deadline")
    with asking(stack, HEADERS, **body) as response:
        response.read(600)
    wait_for("cancelled")
    with stall(stack.http_port, body, HEADERS):
        wait_for("stalled")
    # Several choices are not moved.
    with asking(stack, HEADERS, **body, n=2, temperature=1.0) as response:
        response.read(600)
        worker.control("drain", {"timeout_s": 0.2})
        response.read()
    wait_for("interrupted")


def read_out(worker: Worker, found: Outputs) -> None:
    """What a worker tells while it lives."""
    found.outcomes |= {name for name, count in worker.status()["outcomes"].items() if count}
    found.metrics += worker.system.get("/metrics")[1].splitlines()
    for which in ("last", "failed", "slowest"):
        told = worker.control("trace", {"which": which, "limit": 64})
        found.stories += [json.dumps(story) for story in told["stories"]]


def read_collector(collector: Collector, found: Outputs) -> None:
    """What came from the workers, the framework's part in their processes included."""
    for message in collector.requests:
        for resource in message.resource_spans:
            if attributes_of(resource.resource.attributes)["service.name"] in (TORCH, PACED):
                found.spans += [text_of(span) for scope in resource.scope_spans for span in scope.spans]
    for records in collector.logs:
        for resource in records.resource_logs:
            if attributes_of(resource.resource.attributes)["service.name"] in (TORCH, PACED):
                found.exported_logs += [
                    json.dumps([record.body.string_value, attributes_of(record.attributes)])
                    for scope in resource.scope_logs
                    for record in scope.log_records
                ]


def text_of(span: Span) -> str:
    """All that is text or number in it, lists as lists."""
    told = [attributes_of(part.attributes) for part in (*span.events, *span.links)]
    names = [span.name, span.status.message, span.trace_state, *(event.name for event in span.events)]
    return json.dumps([names, attributes_of(span.attributes), told])


def test_every_outcome_was_there(outputs: Outputs) -> None:
    """Else the search would mean little; each output has something in it, ours and the framework's."""
    assert outputs.outcomes == OUTCOMES
    assert all(outputs.named().values())
    assert any("actor.stream" in text for text in outputs.spans)
    assert any("engine.generate" in text for text in outputs.spans)
    assert sum("request.ended" in line for line in outputs.logs) == len(
        {json.loads(story)["context_id"] for story in outputs.stories}
    )


@pytest.mark.parametrize("output", list(Outputs().named()))
def test_no_output_shows_content(outputs: Outputs, output: str) -> None:
    """Neither a marker nor a list of ids."""
    assert [text for text in outputs.named()[output] if shows_content(text)] == []


@pytest.mark.parametrize("planted", [f"a {SECRET} b", json.dumps({"ids": [5, 6, 7]}), "[1000, 1001, 1002]"])
def test_the_search_finds_what_is_there(planted: str) -> None:
    """A marker in a text, ids in a list."""
    assert shows_content(planted)
