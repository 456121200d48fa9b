"""docs/tracing.md, held against the spans of every kind of request, abort and drain, both ways round."""

from __future__ import annotations

import ast
import itertools
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from protocols.errors import FailureCause
from protocols.spec import Sampling
from protocols.steps import EngineTiming
from protocols.telemetry import AbortResult, CancelReason, Outcome, Phase, WorkerState
from protocols.trace_link import TraceLink
from service.telemetry.exporting import Pipeline
from service.telemetry.figures import HopName, figures_of
from service.telemetry.span_attributes import RequestAttributes
from service.telemetry.spans import Spans, resource_of
from service.telemetry.trace_settings import TraceSettings
from tests.service.telemetry.tales import SAMPLED, pace_of, report_of_drain, tale, tale_of_abort

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from opentelemetry.sdk.trace import ReadableSpan

    from protocols.telemetry import RequestStory

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tracing.md").read_text(encoding="utf-8")
CODE = re.compile(r"`([^`]+)`")
VARIABLE = re.compile(r"OTEL_[A-Z_]+[A-Z]|(?:POD|NODE)_[A-Z]+")
HOPS = {f"actor.{hop.value}" for hop in HopName}
OF_A_REQUEST = {*HOPS, "actor.cancel", "actor.abort"}
# Words of the page for several spans at once.
WORDS = {"every span of a request": OF_A_REQUEST, "the end": HOPS, "any hop": HOPS}
ALL_OPTIONS = Sampling(
    temperature=0.5, top_k=20, top_p=0.75, frequency_penalty=-0.5, presence_penalty=0.25, seed=1
)


def _rows(heading: str, columns: list[str]) -> list[list[str]]:
    """The table of a section; its heading and columns are as this test knows them."""
    _, found, section = PAGE.partition(f"\n{heading}\n")
    assert found, f"no section {heading!r}"
    lines = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    assert cells[0] == columns
    assert {len(row) for row in cells[2:]} == {len(columns)}
    assert all(cell for row in cells[2:] for cell in row)
    return cells[2:]


SPAN_ROWS = _rows("## Spans", ["span", "lasts", "there is one"])
ATTRIBUTE_ROWS = _rows("## Attributes", ["attribute", "on", "meaning"])
EVENT_ROWS = _rows("## Events", ["event", "on", "attributes", "what happened"])
RESOURCE_ROWS = _rows("## Resource", ["attribute", "value"])
VARIABLE_ROWS = _rows("## Variables", ["variable", "read by", "default", "here"])


def _name(cell: str) -> str:
    found = CODE.fullmatch(cell)
    assert found, f"{cell} is not one name"
    return found[1]


def _places(cell: str) -> set[str]:
    """Spans by name, and by the words for several of them."""
    named = set(CODE.findall(cell))
    return named.union(*(spans for words, spans in WORDS.items() if words in cell))


def _stories() -> Iterator[RequestStory]:
    """Every outcome in every phase for every reason, with all that a story can have; and one in intake."""
    phases = [phase for phase in Phase if phase is not Phase.FINISHED]
    for outcome, phase, reason in itertools.product(Outcome, phases, (None, *CancelReason)):
        for cancelled_s in (100.03, 100.1, 100.3, 101.0):
            yield _full(outcome, phase, reason, cancelled_s)
        yield _full(outcome, Phase.RESOLVING, reason, 100.03, admitted_s=None)


def _full(
    outcome: Outcome, phase: Phase, reason: CancelReason | None, cancelled_s: float, **changes: float | None
) -> RequestStory:
    return tale(
        outcome,
        phase,
        finish_reason="stop",
        cancel_reason=reason,
        cancelled_s=None if reason is None else cancelled_s,
        error_kind="GenerationFailed",
        failure_cause=FailureCause.ENGINE if outcome is Outcome.FAILED else None,
        n=2,
        max_tokens=9,
        sampling=ALL_OPTIONS,
        chunks=3,
        preemptions=2,
        preempted_s=(100.3, 101.0),
        engine_timing=EngineTiming(queued_s=0.01, prefill_s=0.2, decode_s=2.0, transfer_s=0.05),
        pace=pace_of((100.5, 1), (101.0, 2), (102.5, 4)),
        predecessor=TraceLink("ab" * 16, "cd" * 8),
        is_moved=True,
        trace_headers=SAMPLED,
        **changes,
    )


@cache
def told() -> tuple[ReadableSpan, ...]:
    """All spans of all these stories, of aborts, and of a drain."""
    exporter, lost = InMemorySpanExporter(), dict[str, int]()
    pipeline = Pipeline(TraceSettings(queue_spans=100_000), exporter, lost.__setitem__)
    attributes = RequestAttributes(version="1", engine="torch", model="m")
    spans = Spans(pipeline, resource_of("1", "i"), attributes, has_roots=True)
    for story in _stories():
        spans.request_ended(story, figures_of(story))
    for result in AbortResult:
        spans.abort_told(tale_of_abort(result, trace_headers=SAMPLED))
    spans.state_changed(WorkerState.DRAINING)
    spans.drain_ended(report_of_drain())
    spans.shutdown()
    assert lost == {}
    return exporter.get_finished_spans()


def test_every_span_has_its_row_and_every_row_its_span() -> None:
    """By name; one that is new, or gone, cannot be forgotten."""
    assert sorted(_name(row[0]) for row in SPAN_ROWS) == sorted({span.name for span in told()})


def test_every_attribute_has_its_row_with_the_spans_it_is_on() -> None:
    """All of them and no others."""
    found: dict[str, set[str]] = defaultdict(set)
    for span in told():
        for name in span.attributes or {}:
            found[name].add(span.name)
    assert {_name(row[0]): _places(row[1]) for row in ATTRIBUTE_ROWS} == found


def test_every_event_has_its_row_with_its_spans_and_attributes() -> None:
    """All of them and no others."""
    found: dict[str, tuple[set[str], set[str]]] = defaultdict(lambda: (set(), set()))
    for span in told():
        for event in span.events:
            places, attributes = found[event.name]
            places.add(span.name)
            attributes.update(event.attributes or {})
    assert {_name(row[0]): (_places(row[1]), set(CODE.findall(row[2]))) for row in EVENT_ROWS} == found


@pytest.mark.parametrize("rows", [SPAN_ROWS, ATTRIBUTE_ROWS, EVENT_ROWS, RESOURCE_ROWS, VARIABLE_ROWS])
def test_no_row_is_there_twice(rows: list[list[str]]) -> None:
    """Whoever looks a name up finds one answer."""
    assert len({row[0] for row in rows}) == len(rows)


def test_links_are_where_the_page_says() -> None:
    """On the hop in which a life begins, and nowhere else."""
    assert {span.name for span in told() if span.links} == {"actor.intake"}


def test_an_error_is_where_the_page_says() -> None:
    """By its outcomes, and of aborts; nothing else is one, and nothing is said to be fine."""
    _, _, text = PAGE.partition("**Status.**")
    named = set(CODE.findall(text.partition("\n\n")[0])) & set(Outcome)
    found = {
        str((span.attributes or {}).get("actor.outcome", span.name))
        for span in told()
        if span.status.status_code.name == "ERROR"
    }
    assert found == {*named, "actor.abort"}
    assert {span.status.status_code.name for span in told()} == {"UNSET", "ERROR"}


def test_every_attribute_of_the_resource_has_its_row() -> None:
    """But for what the SDK says of itself; each variable of a row is the one that is read."""
    places = {variable: f"its {variable}" for row in RESOURCE_ROWS for variable in VARIABLE.findall(row[1])}
    found = {
        name: value
        for name, value in _resource(places).items()
        if not name.startswith("telemetry.") and name != "service.name"
    }
    assert set(found) | {"service.name"} == {_name(row[0]) for row in RESOURCE_ROWS}
    for row in RESOURCE_ROWS:
        if _name(row[0]).startswith("k8s."):
            assert [found[_name(row[0])]] == [f"its {variable}" for variable in VARIABLE.findall(row[1])]


def _resource(environ: Mapping[str, str]) -> dict[str, object]:
    return dict(resource_of("1", "i", "dynamo", environ).attributes)


def test_every_variable_that_is_read_has_its_row() -> None:
    """Those whose name stands in our own code; the SDK's are named by the page alone."""
    named = {variable for row in VARIABLE_ROWS for variable in CODE.findall(row[0])}
    read = {
        node.value
        for file in (ROOT / "service" / "telemetry").glob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"OTEL_[A-Z_]+[A-Z]", node.value)
    }
    assert len(read) > 6
    assert read - named == set()


def test_defaults_of_the_page_are_ours() -> None:
    """Those that are numbers of ours."""
    defaults = {name: row[2] for row in VARIABLE_ROWS for name in CODE.findall(row[0])}
    ours = TraceSettings()
    assert defaults["OTEL_BSP_MAX_QUEUE_SIZE"] == str(ours.queue_spans)
    assert defaults["OTEL_BSP_MAX_EXPORT_BATCH_SIZE"] == str(ours.batch_spans)
    assert defaults["OTEL_BSP_SCHEDULE_DELAY"] == f"{ours.delay_ms} ms"
    assert defaults["OTEL_EXPORTER_OTLP_PROTOCOL"] == f"`{ours.protocol}`"
