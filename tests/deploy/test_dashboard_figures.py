"""What each panel shows, one line a panel: how it is drawn, its unit, its quantiles, and of which moment."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.deploy.dashboard_file import filled, panels
from tests.deploy.promql import grouping_labels

ALL = (0.5, 0.95, 0.99)
# Title, kind, Grafana's name of the unit, quantiles.
TABLE: tuple[tuple[str, str, str, tuple[float, ...]], ...] = (
    ("Serving", "stat", "short", ()),
    ("Requests", "stat", "reqps", ()),
    ("Answered", "stat", "percentunit", ()),
    ("First token p95", "stat", "s", (0.95,)),
    ("Per token p95", "stat", "s", (0.95,)),
    ("Tokens out", "stat", "cps", ()),
    ("Live", "stat", "short", ()),
    ("Leaving", "stat", "short", ()),
    ("Firing alerts", "timeseries", "short", ()),
    ("How fast the error budget burns", "timeseries", "short", ()),
    ("Slow beyond the service levels", "timeseries", "percentunit", ()),
    ("Requests of each worker", "timeseries", "reqps", ()),
    ("Workers by state", "timeseries", "short", ()),
    ("How requests ended", "timeseries", "reqps", ()),
    ("Failures by cause", "timeseries", "reqps", ()),
    ("Refused by reason", "timeseries", "reqps", ()),
    ("Ended early, and where", "timeseries", "reqps", ()),
    ("Interrupted, and moved", "timeseries", "short", ()),
    ("Tokens", "timeseries", "cps", ()),
    ("Time to first token", "heatmap", "s", ()),
    ("Time to first token, quantiles", "timeseries", "s", ALL),
    ("Time per output token", "heatmap", "s", ()),
    ("Time per output token, quantiles", "timeseries", "s", ALL),
    ("Wait for the engine", "timeseries", "s", ALL),
    ("Time in each hop", "timeseries", "s", (0.95,)),
    ("Duration", "timeseries", "s", ALL),
    ("Tokens over chunks", "timeseries", "short", ()),
    ("Prompts found in the cache", "timeseries", "percentunit", ()),
    ("Waiting for a place", "timeseries", "short", ()),
    ("Live requests", "timeseries", "short", ()),
    ("Requests in the engine", "timeseries", "short", ()),
    ("Mailboxes, how full", "timeseries", "percentunit", ()),
    ("Mailboxes, messages", "timeseries", "short", ()),
    ("Bounds that were reached", "timeseries", "cps", ()),
    ("Time until admission", "heatmap", "s", ()),
    ("Time until a request is resolved", "heatmap", "s", ()),
    ("Engine step", "timeseries", "s", ALL),
    ("Engine steps", "heatmap", "s", ()),
    ("Steps a second", "timeseries", "cps", ()),
    ("Sequences in the engine", "timeseries", "short", ()),
    ("KV blocks", "timeseries", "short", ()),
    ("KV blocks in use", "timeseries", "percentunit", ()),
    ("Preemptions", "timeseries", "cps", ()),
    ("TensorRT-LLM's own queue", "timeseries", "short", ()),
    ("KV events for routers", "timeseries", "cps", ()),
    ("Aborts", "timeseries", "cps", ()),
    ("Time until an abort is confirmed", "timeseries", "s", ALL),
    ("Logits processors, time for a token", "timeseries", "s", ()),
    ("Life of workers", "state-timeline", "short", ()),
    ("Requests that a drain waits for", "timeseries", "short", ()),
    ("How long drains took", "timeseries", "s", (0.95,)),
    ("Workers that still load", "timeseries", "short", ()),
    ("Time to load the model", "timeseries", "s", ()),
    ("Memory that sleeps", "timeseries", "short", ()),
    ("What runs", "table", "short", ()),
    ("Event loop lag", "timeseries", "s", ALL),
    ("Event loop lag, the last one", "timeseries", "s", ()),
    ("Timers that were a quarter of a second late", "timeseries", "percentunit", ()),
    ("Spans lost", "timeseries", "cps", ()),
    ("Reports that could not be written", "timeseries", "short", ()),
    ("Queue of the framework", "timeseries", "short", ()),
    ("Since the last start", "timeseries", "s", ()),
    ("Scrapes", "timeseries", "short", ()),
)
# Of nobody these are nought: no figure at all would look like a broken page, or like the last one there was.
COUNTS = ["Serving", "Requests", "Tokens out", "Live", "Leaving"]


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [panel for panel in panels() if panel["type"] == kind]


def expressions_of(panel: dict[str, Any]) -> list[str]:
    return [target["expr"] for target in panel["targets"]]


def quantiles_of(panel: dict[str, Any]) -> tuple[float, ...]:
    found = re.findall(r"histogram_quantile\(([0-9.]+)", " ".join(expressions_of(panel)))
    return tuple(map(float, found))


def title_of(panel: dict[str, Any]) -> str:
    return str(panel["title"])


def test_every_panel_shows_what_its_line_says() -> None:
    """Whoever changes one changes its line, too."""
    shown = tuple(
        (panel["title"], panel["type"], panel["fieldConfig"]["defaults"]["unit"], quantiles_of(panel))
        for panel in panels()
    )
    assert shown == TABLE


@pytest.mark.parametrize("panel", [one for one in panels() if quantiles_of(one)], ids=title_of)
def test_the_name_of_a_quantile_is_its_number(panel: dict[str, Any]) -> None:
    """In the title of a figure, and in the legend of a line; summed up by bucket, or there is none."""
    for target, share in zip(panel["targets"], quantiles_of(panel), strict=True):
        named = re.findall(r"\bp(\d+)\b", f"{panel['title']} {target['legendFormat']} {panel['description']}")
        assert set(named) <= {f"{each * 100:g}" for each in ALL}
        own = re.findall(r"\bp(\d+)\b", target["legendFormat"]) or re.findall(r"\bp(\d+)\b", panel["title"])
        assert set(own) <= {f"{share * 100:g}"}
        assert "le" in grouping_labels(filled(target["expr"]))


@pytest.mark.parametrize("panel", of_kind("stat"), ids=title_of)
def test_a_figure_at_the_top_is_the_one_of_now(panel: dict[str, Any]) -> None:
    """Asked for this moment: of a range the last value would stay after its worker had gone."""
    (target,) = panel["targets"]
    assert (target["instant"], target["range"], target["format"]) == (True, False, "time_series")
    reducing = panel["options"]["reduceOptions"]
    assert (reducing["calcs"], reducing["values"], reducing["fields"]) == (["lastNotNull"], False, "")
    assert panel["options"]["graphMode"] == "none"


def test_a_count_of_nobody_is_nought() -> None:
    """In an outage "Serving" is 0 and red; a share or a quantile of nothing is not known, and stays empty."""
    counting = [
        panel["title"] for panel in of_kind("stat") if expressions_of(panel)[0].endswith(" or vector(0)")
    ]
    assert counting == COUNTS
    (serving,) = (panel for panel in panels() if panel["title"] == "Serving")
    steps = serving["fieldConfig"]["defaults"]["thresholds"]["steps"]
    assert [(step["value"], step["color"]) for step in steps] == [(None, "red"), (1, "green")]


@pytest.mark.parametrize("panel", of_kind("heatmap"), ids=title_of)
def test_a_heat_map_has_the_buckets_of_its_histogram(panel: dict[str, Any]) -> None:
    """Each bound is a line of it, in seconds, and Grafana makes no buckets of its own."""
    (target,) = panel["targets"]
    assert grouping_labels(filled(target["expr"])) == {"le"}
    assert "_seconds_bucket{" in target["expr"]
    assert (target["format"], target["legendFormat"], target["range"]) == ("heatmap", "{{le}}", True)
    assert panel["options"]["calculate"] is False
    assert panel["options"]["yAxis"]["unit"] == panel["fieldConfig"]["defaults"]["unit"] == "s"


@pytest.mark.parametrize("panel", [one for one in panels() if one["type"] == "timeseries"], ids=title_of)
def test_lines_are_asked_over_the_time_that_is_shown(panel: dict[str, Any]) -> None:
    """From end to end, and a gap stays one."""
    assert all((one["instant"], one["range"]) == (False, True) for one in panel["targets"])
    assert panel["fieldConfig"]["defaults"]["custom"]["spanNulls"] is False
