"""The tables of "Log lines" on the operations page, held against every line that the code can write."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from protocols.telemetry import Pace
from protocols.trace_link import TraceLink
from service.telemetry.figures import figures_of
from service.telemetry.request_log import RequestLog
from tests.service.telemetry.readings import all_lines
from tests.service.telemetry.tales import SAMPLED, tale

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "operations.md"
HEADING = "## Log lines"
COLUMNS = ["line", "level", "fields", "when, and how often"]
LEVELS = {"debug", "info", "warning", "error"}
METHODS = {**{level: level for level in LEVELS}, "critical": "error", "exception": "error"}
# Keywords that are not written as fields of that name.
NOT_FIELDS = {"once_per": None, "exc_info": "exception"}
# Its fields come from a function, which a test below asks.
BY_FUNCTION = {"request.ended", "request.probe"}
CODE = re.compile(r"`([^`]+)`")


def table(columns: list[str]) -> list[list[str]]:
    """The rows of the section's table with these columns."""
    _, found, section = PAGE.read_text(encoding="utf-8").partition(HEADING)
    assert found, f"no section {HEADING!r}"
    lines = section.partition("\n## ")[0].splitlines()
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        for line in lines
    ]
    start = cells.index(columns) + 2
    return cells[start : cells.index([], start)]


EVENTS = {CODE.findall(row[0])[0]: row for row in table(COLUMNS)}
REQUEST_FIELDS = {name for row in table(["field", "meaning"]) for name in CODE.findall(row[0])}


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _levels_of(call: ast.Call, around: ast.AST) -> set[str]:
    """By the method's name; of one that was chosen before, all that could have been."""
    match call.func:
        case ast.Attribute(attr=method):
            return {METHODS[method]} if method in METHODS else set()
        case ast.Name(id="say"):
            chosen = [node.value for node in ast.walk(around) if isinstance(node, ast.Assign)]
            found = {
                node.attr for value in chosen for node in ast.walk(value) if isinstance(node, ast.Attribute)
            }
            return {METHODS[method] for method in found & METHODS.keys()}
        case _:
            return set()


def written() -> dict[str, tuple[set[str], set[str]]]:
    """Of every event in `service/`: its levels and its fields."""
    found: dict[str, tuple[set[str], set[str]]] = defaultdict(lambda: (set(), set()))
    for file in (ROOT / "service").rglob("*.py"):
        for function in _functions(ast.parse(file.read_text(encoding="utf-8"))):
            for call in _calls(function):
                levels = _levels_of(call, function)
                match call.args:
                    case [ast.Constant(value=str(event))] if levels:
                        fields = {NOT_FIELDS.get(word.arg, word.arg) for word in call.keywords if word.arg}
                        found[event][0].update(levels)
                        found[event][1].update(field for field in fields if field)
    return found


WRITTEN = written()


def test_every_event_has_its_row_and_every_row_its_event() -> None:
    """A line that is new, or gone, cannot be forgotten."""
    assert len(WRITTEN) > 30
    assert sorted(EVENTS) == sorted(WRITTEN)


@pytest.mark.parametrize("event", sorted(WRITTEN))
def test_a_row_has_the_levels_and_fields_of_its_line(event: str) -> None:
    """By name, all of them and no others; how often it is written is said, too."""
    _, level, fields, when = EVENTS[event]
    assert set(level.split(", ")) == WRITTEN[event][0]
    if event in BY_FUNCTION:
        assert fields == "see below"
    else:
        assert set(CODE.findall(fields)) == WRITTEN[event][1]
    assert when


def test_the_line_of_a_request_has_the_fields_of_its_table() -> None:
    """Of one that has everything that a request can have."""
    ends = ("finish_reason", "cancel_reason", "error_kind", "error_text", "failure_cause")
    texts = (*ends, "reject_reason", "refused_field")
    described: dict[str, Any] = dict.fromkeys(texts, "x")
    story = tale(
        **described,
        n=2,
        max_tokens=9,
        chunks=3,
        preemptions=1,
        cancelled_s=101.0,
        is_moved=True,
        pace=Pace((100.5, 101.0), (2, 4), (0.0, 0.5)),
        predecessor=TraceLink("ab" * 16, "cd" * 8),
        trace_headers={**SAMPLED, "x-request-id": "gateway-1"},
    )
    with all_lines() as lines:
        RequestLog().request_ended(story, figures_of(story))
    (line,) = lines.named("request.ended")
    assert line.keys() - {"level"} == REQUEST_FIELDS


def test_what_engines_say_in_their_own_words_is_listed() -> None:
    """Drivers log sentences through the standard library: the page quotes how each of them begins."""
    section = " ".join(PAGE.read_text(encoding="utf-8").partition(HEADING)[2].partition("\n## ")[0].split())
    sentences = [
        str(call.args[0].value)
        for file in (ROOT / "actors").rglob("*.py")
        for call in _calls(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in METHODS
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == "_log"
        and isinstance(call.args[0], ast.Constant)
    ]
    assert len(sentences) >= 3
    assert [text for text in sentences if " ".join(text.split()[:4]) not in section] == []
