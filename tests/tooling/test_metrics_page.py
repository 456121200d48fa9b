"""docs/metrics.md, held against what a worker serves: every name, type, label and value, both ways round."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from protocols.engine import EngineCapabilities
from service.telemetry.families import PREFIX
from service.telemetry.metrics import Metrics
from tests.doubles.maintenance import MoodyMaintenance
from tests.doubles.resting_graph import RestingGraph

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "metrics.md"
METRIC_COLUMNS = {
    "## Every metric": ["name", "type", "labels", "what it tells", "normal"],
    "## In TensorRT-LLM's shape": ["name", "type", "labels", "what it tells", "as TensorRT-LLM means it?"],
}
LABEL_COLUMNS = ["label", "value", "meaning"]
# Of each of these the values are explained elsewhere: its own table, the operator's words, or the row.
ELSEWHERE = {"bound", "processor", "memory", "version", "engine", "framework_version"}
COMMON = {"model_name", "engine_type"}
# The wheel in dist/ has the same beginning, and is no metric.
NAME = re.compile(rf"(?<!dist/)\b{PREFIX}[a-z0-9_]+")


def _rows(heading: str, columns: list[str]) -> list[list[str]]:
    """The first table of a section; its heading and columns are as this test knows them."""
    _, found, section = PAGE.read_text(encoding="utf-8").partition(f"{heading}\n")
    assert found, f"no section {heading!r}"
    lines = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    assert cells[0] == columns
    assert {len(row) for row in cells[2:]} == {len(columns)}
    return cells[2:]


def _families() -> list[Metric]:
    """Of a worker whose engine has started, and can do and tell everything."""
    metrics = Metrics(
        version="1",
        engine="torch",
        framework_version="1",
        model="m",
        capabilities=EngineCapabilities(processors=frozenset({"one"})),
    )
    metrics.watch_memories(MoodyMaintenance(lambda: ()))
    metrics.watch(RestingGraph())
    return list(metrics.registry.collect())


def _name(family: Metric) -> str:
    return family.name + ("_total" if family.type == "counter" else "")


def _labels(family: Metric) -> frozenset[str]:
    common = COMMON if family.name.startswith(f"{PREFIX}trtllm_") else set[str]()
    return frozenset(label for sample in family.samples for label in sample.labels) - {"le"} - common


def _told(cell: str) -> frozenset[str]:
    return frozenset() if cell == "-" else frozenset(re.findall(r"`([a-z_]+)`", cell))


ROWS = [row for heading, columns in METRIC_COLUMNS.items() for row in _rows(heading, columns)]


def test_every_metric_has_its_row_and_every_row_its_metric():
    """With its type and its labels; a name that is changed or added is seen here."""
    served = {_name(family): (family.type, _labels(family)) for family in _families()}
    assert {name.strip("`"): (kind, _told(labels)) for name, kind, labels, *_ in ROWS} == served


def test_no_row_is_there_twice():
    """Whoever looks a name up finds one answer."""
    names = [row[0] for row in ROWS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip("`").removeprefix(PREFIX))
def test_every_row_says_what_it_tells_and_what_is_normal(row: list[str]):
    """A figure that nobody can judge helps nobody."""
    assert all(row)
    assert row[3] != "-"


def test_every_value_of_a_label_is_explained_and_every_explained_value_exists():
    """But for those that have a table of their own, or are the operator's words."""
    explained = {
        (label.strip("`"), value.strip("`")) for label, value, _ in _rows("## Every label", LABEL_COLUMNS)
    }
    served = {
        (label, value)
        for family in _families()
        if not family.name.startswith(f"{PREFIX}trtllm_")
        for sample in family.samples
        for label, value in sample.labels.items()
        if label not in {*ELSEWHERE, "le"}
    }
    assert explained == served


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.stem)
def test_no_page_names_a_metric_that_does_not_exist(page: Path):
    """Bare, as a counter, or as a part of a histogram."""
    known = {name for family in _families() for name in (_name(family), *(s.name for s in family.samples))}
    beginnings = {f"{PREFIX}trtllm_", PREFIX}
    assert {*NAME.findall(page.read_text(encoding="utf-8"))} - known - beginnings == set()
