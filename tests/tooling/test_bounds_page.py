"""The table "Everything has a bound" of the operations page, held against metrics and options."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from pathlib import Path

import pytest

from actors.lanes import Lanes
from protocols.bounds import Bound
from protocols.engine import EngineCapabilities
from protocols.rejections import RejectReason
from service.options.option import Option
from service.options.tables import OPTIONS
from service.telemetry.metrics import Metrics
from service.telemetry.trace_settings import read_trace_settings

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
HEADING = "## Everything has a bound"
COLUMNS = ["what", "bound", "setting", "figure", "when it is reached"]
PREFIX = "dynamo_actor_"
METRIC = re.compile(r"`(?P<name>[a-z_]+)(?:\{(?P<label>[a-z]+)=\"(?P<value>[a-z_]+)\"\})?`")
# With thousands in commas, perhaps in seconds, perhaps with more words.
PLAIN_NUMBER = re.compile(r"([\d,]+)(?: s)?(?:, .*)?")
# Refusals that are no bound: of a request that is wrong in any other way, or of a worker that leaves.
NO_BOUND = {"draining"}


@dataclass(frozen=True)
class Row:
    what: str
    bound: str
    setting: str
    figure: str
    outcome: str

    @property
    def metrics(self) -> list[tuple[str, str | None, str | None]]:
        """Names with at most one label."""
        return [(found["name"], found["label"], found["value"]) for found in METRIC.finditer(self.figure)]

    @property
    def settings(self) -> list[str]:
        return re.findall(r"`([^`]+)`", self.setting)


def rows() -> list[Row]:
    """The table's rows; its heading and columns are as this test knows them."""
    _, found, section = PAGE.read_text(encoding="utf-8").partition(HEADING)
    assert found, f"no section {HEADING!r}"
    lines = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[0] == COLUMNS
    return [Row(*row) for row in cells[2:]]


ROWS = rows()
CAN = EngineCapabilities(processors=frozenset({"one"}))


def what(row: Row) -> str:
    return row.what


@pytest.fixture(scope="module")
def series() -> set[tuple[str, str | None, str | None]]:
    """Of a worker that has just been built: each metric bare, and with each of its labels."""
    found: set[tuple[str, str | None, str | None]] = set()
    metrics = Metrics(version="1", engine="torch", framework_version="1", capabilities=CAN)
    for family in metrics.registry.collect():
        for name in (family.name, *(sample.name for sample in family.samples)):
            found.add((name.removeprefix(PREFIX), None, None))
        for sample in family.samples:
            name = sample.name.removeprefix(PREFIX)
            found.update((name, label, value) for label, value in sample.labels.items())
    return found


def spellings(option: Option) -> set[str | None]:
    return {option.flag, option.env, *option.aliases}


def is_setting(name: str) -> bool:
    """An option of ours, in either spelling, or one of OpenTelemetry's that the tracing obeys."""
    if any(name in spellings(option) and option.is_usable for option in OPTIONS):
        return True
    switch = {"OTEL_EXPORT_ENABLED": "1"}
    return read_trace_settings({**switch, name: "7"}) != read_trace_settings(switch)


@pytest.mark.parametrize("row", ROWS, ids=what)
def test_every_row_says_all_there_is_to_say(row: Row) -> None:
    """A limit, and what happens at it."""
    assert all((row.what, row.bound, row.setting, row.figure, row.outcome))
    assert "-" not in (row.what, row.bound, row.figure, row.outcome)


@pytest.mark.parametrize("row", ROWS, ids=what)
def test_every_row_has_figures_that_exist(row: Row, series: set[tuple[str, str | None, str | None]]) -> None:
    """Each metric is there from the start, with the label's value; what is in backticks is a metric."""
    assert row.metrics
    assert len(row.metrics) == row.figure.count("`") / 2
    assert [metric for metric in row.metrics if metric not in series] == []


@pytest.mark.parametrize("row", ROWS, ids=what)
def test_every_setting_of_a_row_exists(row: Row) -> None:
    """What can be set is an option under that very name; a constant has none."""
    assert row.setting == "-" or row.settings
    assert [name for name in row.settings if not is_setting(name)] == []


@pytest.mark.parametrize("row", ROWS, ids=what)
def test_a_limit_that_is_an_options_default_is_that_default(row: Row) -> None:
    """Where the bound is a plain number and can be set."""
    plain = PLAIN_NUMBER.fullmatch(row.bound)
    defaults = [option.default for option in OPTIONS for name in row.settings if name in spellings(option)]
    if plain is not None and defaults and type(defaults[0]) in (int, float):
        assert float(plain[1].replace(",", "")) == defaults[0]


def test_a_name_that_is_none_is_found() -> None:
    """This test can fail."""
    assert not is_setting("--max-lives")
    assert not is_setting("OTEL_BSP_QUEUE")
    assert is_setting("OTEL_BSP_MAX_QUEUE_SIZE")


def test_no_row_is_there_twice() -> None:
    """Whoever looks a bound up finds one answer."""
    assert len({row.what for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("bound", Bound)
def test_every_counted_bound_has_its_row(bound: Bound) -> None:
    """And nobody's row counts something else under its name."""
    assert any(("bound_reached_total", "bound", bound.value) in row.metrics for row in ROWS)


@pytest.mark.parametrize("reason", [reason for reason in RejectReason if reason not in NO_BOUND])
def test_every_reason_for_a_refusal_has_its_row(reason: str) -> None:
    """A refusal is a bound that was reached."""
    assert any(("rejected_total", "reason", reason) in row.metrics for row in ROWS)


def test_every_lane_of_the_graph_has_its_row() -> None:
    """One that is added needs a bound and a word about it; monitor and executor share theirs."""
    named = {value for row in ROWS for name, _, value in row.metrics if name == "mailbox_depth"}
    assert named | {"executor_control"} == {field.name for field in fields(Lanes)}
