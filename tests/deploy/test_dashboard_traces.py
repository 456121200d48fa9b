"""The links from panels to traces, held against what spans say, and what the links themselves promise."""

from __future__ import annotations

import re
from typing import Any

import pytest

from service.telemetry.figures import figures_of
from service.telemetry.span_attributes import RequestAttributes
from service.telemetry.spans import resource_of
from tests.deploy.dashboard_file import dashboard, panels, trace_links, trace_searches
from tests.deploy.rule_files import REPOSITORY
from tests.deploy.traceql import Span, finds
from tests.service.telemetry.tales import tale

TRACING = REPOSITORY / "docs" / "tracing.md"
DEPLOY = REPOSITORY / "deploy"
# An attribute's row on that page: on which spans it is. The end is whichever hop was the last.
ROW = re.compile(r"^\| `([\w.]+)` \| (.+?) \|", re.MULTILINE)
THE_END = {"actor.intake", "actor.resolve", "actor.execute", "actor.stream"}
# In an environment of YAML as a mapping or a list, or in a file of variables.
NAMED = re.compile(r"OTEL_SERVICE_NAME['\"]?\s*(?:[:=]|value:)\s*['\"]?([\w.-]+)")
# What a link says, a span that it finds, and one that it just does not.
FOUND: dict[str, tuple[Span, Span]] = {
    "Traces: first token after 1 s": (Span("actor.execute", 1001), Span("actor.execute", 999)),
    "Traces: more than 1 s for a place": (
        Span("actor.execute", own={"actor.waiting_ms": 1001.0}),
        Span("actor.execute", own={"actor.waiting_ms": 999.0}),
    ),
    "Traces: options that took 100 ms": (Span("actor.resolve", 101), Span("actor.resolve", 99)),
    "Traces: more than 0.1 s for a token": (
        Span("actor.stream", own={"actor.itl_mean_ms": 101.0}),
        Span("actor.stream", own={"actor.itl_mean_ms": 99.0}),
    ),
    "Traces: streams of 30 s": (Span("actor.stream", 30_001), Span("actor.stream", 29_999)),
    "Traces: failed": (
        Span("actor.execute", own={"actor.outcome": "failed"}),
        Span("actor.execute", own={"actor.outcome": "interrupted"}),
    ),
    "Traces: interrupted": (
        Span("actor.stream", own={"actor.outcome": "interrupted"}),
        Span("actor.stream", own={"actor.outcome": "failed"}),
    ),
    "Traces: lost their memory": (
        Span("actor.execute", own={"actor.preemptions": 1}),
        Span("actor.execute", own={"actor.preemptions": 0}),
    ),
    "Traces: drains": (Span("actor.drain"), Span("actor.stream")),
    "Traces: aborts not confirmed": (
        Span("actor.abort", own={"actor.abort.result": "timed_out"}),
        Span("actor.abort", own={"actor.abort.result": "confirmed"}),
    ),
}


def service() -> str:
    """What stands in the box for the service when the page is opened."""
    (box,) = (one for one in dashboard()["templating"]["list"] if one["name"] == "service")
    assert box["query"] == box["current"]["value"] == box["options"][0]["value"]
    return str(box["query"])


def shipped_names() -> dict[str, str]:
    """Each name that a file of ours gives, by the file and its place there."""
    return {
        f"{path.relative_to(DEPLOY)}:{found.start()}": found[1]
        for path in sorted(DEPLOY.rglob("*"))
        if path.is_file() and DEPLOY / "observability" not in path.parents
        for found in NAMED.finditer(path.read_text(encoding="utf-8"))
    }


def attributes_of_a_request() -> dict[str, Any]:
    """Of all hops of one that was served, and computed again meanwhile."""
    story = tale(preemptions=1)
    figures = figures_of(story)
    known = RequestAttributes(version="1", engine="torch", model="m")
    return {name: value for hop in figures.hops for name, value in known.of_hop(hop, story, figures).items()}


def test_links_to_traces_search_by_what_spans_say() -> None:
    """Of this service, in the time that is shown; names and attributes are those of the page of tracing."""
    page = TRACING.read_text(encoding="utf-8")
    searches = trace_searches()
    assert searches
    for search in searches:
        assert search["range"] == {"from": "${__from}", "to": "${__to}"}
        (query,) = search["queries"]
        assert query["datasource"]["uid"] == search["datasource"] == "${tempo}"
        asked = query["query"]
        assert asked.startswith('{ resource.service.name =~ "${service}" && ')
        named = re.findall(r'(?<!service\.)name = "([^"]+)"', asked) + re.findall(r"span\.([a-z_.]+)", asked)
        assert named
        assert all(f"`{name}`" in page for name in named), asked


def test_links_to_traces_compare_fractions_with_fractions() -> None:
    """Tempo does not find an attribute that is a fraction by a whole number, nor the other way round."""
    found = attributes_of_a_request()
    compared = [
        pair
        for search in trace_searches()
        for pair in re.findall(r"span\.([\w.]+) [<>]=? (\S+)", search["queries"][0]["query"])
    ]
    assert len(compared) >= 3
    for name, number in compared:
        assert isinstance(found[name], float) == ("." in number), (name, number)


@pytest.mark.parametrize(
    "title",
    ["Time to first token", "Time per output token", "Wait for the engine", "Time in each hop", "Duration"],
)
def test_every_panel_about_time_leads_to_traces(title: str) -> None:
    """From "it is slow" to "this one was" is one step."""
    (panel,) = (panel for panel in panels() if panel["title"] == title)
    assert panel["fieldConfig"]["defaults"]["links"]


@pytest.mark.parametrize(("title", "query"), trace_links())
def test_a_link_finds_what_it_says(title: str, query: str) -> None:
    """And nothing that is just not like it, with the number and the unit of its own words."""
    found, other = FOUND[title]
    filled = query.replace("${service}", service())
    assert finds(filled, found)
    assert not finds(filled, other)


@pytest.mark.parametrize("span", [span for pair in FOUND.values() for span in pair])
def test_what_links_are_tried_on_are_spans_that_there_are(span: Span) -> None:
    """Each attribute on a span that has it, as the page of tracing says."""
    page = TRACING.read_text(encoding="utf-8")
    places = dict(ROW.findall(page))
    assert span.name in places
    for attribute in span.own:
        place = places[attribute]
        assert f"`{span.name}`" in place or ("the end" in place and span.name in THE_END)


def test_every_promise_of_a_link_is_made_by_one() -> None:
    """The table above has no line too many."""
    assert {title for title, _ in trace_links()} == FOUND.keys()


def test_links_find_the_traces_of_every_shipped_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever name a file gives its workers, and with none: nobody has to touch the box."""
    monkeypatch.delenv("OTEL_SERVICE_NAME", raising=False)
    monkeypatch.delenv("OTEL_RESOURCE_ATTRIBUTES", raising=False)
    without = str(resource_of("1", "i").attributes["service.name"])
    names = {*shipped_names().values(), without}
    assert len(names) >= 3
    for title, query in trace_links():
        found, _ = FOUND[title]
        for name in names:
            assert finds(query.replace("${service}", service()), found.of(name)), name


@pytest.mark.parametrize(
    "text",
    ["OTEL_SERVICE_NAME: chat", "- OTEL_SERVICE_NAME=chat", 'name: OTEL_SERVICE_NAME\n  value: "chat"'],
)
def test_a_name_is_found_however_it_is_given(text: str) -> None:
    """The test above misses no file."""
    assert NAMED.findall(text) == ["chat"]


def test_the_box_for_the_service_narrows_the_search() -> None:
    """To a name, or to any, and it is a pattern of the whole name."""
    (_, query), *_ = trace_links()
    mine = FOUND["Traces: failed"][0].of("chat")
    assert finds(query.replace("${service}", "chat"), mine)
    assert finds(query.replace("${service}", ".*"), mine)
    assert not finds(query.replace("${service}", service()), mine)
    # Grafana puts it into the address as it is, where a plus sign is a blank, and into a text of JSON.
    assert not set(service()) & set('+"\\&#')
