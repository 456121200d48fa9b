"""Rules and alerts, held against what a worker serves, what its pages say, and their own unit tests."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import promql_parser
import pytest

from protocols.bounds import Bound
from protocols.telemetry import WorkerState
from service.options.budgets import OperatorTimes, plan_budgets
from tests.deploy.promql import asked_by, grouping_labels, metrics_of
from tests.deploy.rule_files import (
    ALERTS,
    FILES,
    RECORDED,
    RECORDINGS,
    REPOSITORY,
    RUNBOOKS,
    UNIT_TESTS,
    Rule,
    name_of,
    read,
    rules,
)
from tests.deploy.served_metrics import BRIDGE_LABELS, FREE_LABELS, OF_OTHERS, SCRAPE_LABELS, served
from tests.e2e.servers import tool

PROMETHEUS = REPOSITORY / "deploy" / "observability" / "prometheus.yml"
OPERATIONS = REPOSITORY / "docs" / "operations.md"
WINDOW = re.compile(r"(?<=\[)\w+(?=\])|(?<=rate)(?:5m|30m|1h|2h|6h|1d|3d)\b")
SEVERITIES = {"critical", "warning"}
# What a pager needs of a drain: the budgets of deploy/ (--drain-timeout 120, the framework's grace of 5 s,
# a pod's 150 s).
DRAIN_S, GRACE_S, KILLED_S = 120.0, 5.0, 150.0
DAY_S = 86_400.0
# What is written under every runbook, in this order.
PARTS = ("Means", "Clients", "Look first", "Do", "Escalate")


def promtool(*words: str) -> None:
    """Run it; its report is the failure's text."""
    ran = subprocess.run([tool("promtool"), *words], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def runbooks() -> dict[str, str]:
    """Every section below "Runbooks", by its heading."""
    _, found, text = OPERATIONS.read_text(encoding="utf-8").partition("\n## Runbooks\n")
    assert found, "no section of runbooks"
    parts = re.split(r"^### (\w+)$", text.partition("\n## ")[0], flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_promtool_accepts_every_rule_file(path: Path) -> None:
    """As Prometheus reads it."""
    promtool("check", "rules", str(path))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("path", UNIT_TESTS, ids=lambda path: path.stem)
def test_every_alert_fires_when_it_should_and_only_then(path: Path) -> None:
    """The unit tests of the rules themselves, with the texts that a pager shows."""
    promtool("test", "rules", str(path))


@pytest.mark.parametrize("rule", rules(), ids=name_of)
def test_every_expression_reads_only_what_there_is(rule: Rule) -> None:
    """What a worker serves, what another rule records, or one of the few names of others."""
    assert metrics_of(rule.expression) - served().keys() - RECORDED - OF_OTHERS.keys() == set()


@pytest.mark.parametrize("rule", rules(), ids=name_of)
def test_every_condition_can_be_met(rule: Rule) -> None:
    """Its label belongs to that metric, and so do the values that it names, bounds of histograms too."""
    for asked in asked_by(rule.expression):
        own = served().get(asked.metric, {})
        for match in asked.matches:
            assert match.label in own or match.label in FREE_LABELS, (asked.metric, match.label)
            if match.label in own and match.label not in FREE_LABELS:
                assert match.words, f"{match.value}: a pattern that is no list of words"
                assert set(match.words) <= own[match.label], (asked.metric, match)


@pytest.mark.parametrize("rule", rules(), ids=name_of)
def test_every_label_that_is_grouped_by_exists(rule: Rule) -> None:
    """On a metric of the expression, by the framework's bridge, or by the scrape."""
    own = {label for metric in metrics_of(rule.expression) for label in served().get(metric, {})}
    assert grouping_labels(rule.expression) <= own | BRIDGE_LABELS | SCRAPE_LABELS


def test_every_window_of_a_service_level_has_the_same_rules() -> None:
    """But for the window, which is the same everywhere in one rule."""
    shapes: dict[str, dict[str, str]] = {}
    for rule in RECORDINGS:
        (window,) = set(WINDOW.findall(f"{rule.name} {rule.expression}"))
        shapes.setdefault(window, {})[rule.name.removesuffix(window)] = WINDOW.sub("W", rule.expression)
    first, *others = shapes.values()
    assert others
    assert all(other == first for other in others)


def test_recorded_names_say_level_metric_and_operation() -> None:
    """As Prometheus' own advice has it, and no two rules record the same."""
    assert len(RECORDED) == len(RECORDINGS)
    assert all(re.fullmatch(r"component:dynamo_actor_[a-z_]+:[a-z_]+\d+[mhd]", name) for name in RECORDED)


def test_no_two_alerts_have_one_name() -> None:
    """A name leads to one runbook."""
    names = [alert.name for alert in ALERTS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("alert", ALERTS, ids=name_of)
def test_every_alert_says_how_bad_it_is_what_it_is_and_what_to_do(alert: Rule) -> None:
    """A severity, how long it waits, a line, a paragraph, and the link to its own runbook."""
    assert alert.name.startswith("DynamoActor")
    assert alert.labels.keys() == {"severity"}
    assert alert.labels["severity"] in SEVERITIES
    assert re.fullmatch(r"\d+[smh]", alert.for_)
    assert alert.annotations.keys() == {"summary", "description", "runbook_url"}
    assert len(alert.annotations["summary"]) < 100
    assert alert.annotations["runbook_url"] == RUNBOOKS + alert.name.lower()


@pytest.mark.parametrize("alert", ALERTS, ids=name_of)
def test_no_text_shows_a_label_that_its_alert_has_lost(alert: Rule) -> None:
    """What is summed up over a label cannot be told of it any more."""
    recorded = any(name in RECORDED for name in metrics_of(alert.expression))
    kept = grouping_labels(alert.expression) | (
        {label for rule in RECORDINGS for label in grouping_labels(rule.expression)} if recorded else set()
    )
    assert alert.told_labels <= kept


@pytest.mark.parametrize("alert", ALERTS, ids=name_of)
def test_no_alert_goes_by_the_worker_id(alert: Rule) -> None:
    """A restart may change it, and the alert would begin anew; it may be counted, no more."""
    last = alert.expression.partition("count by (job, instance, worker_id)")
    assert "worker_id" not in last[0] + last[2]


@pytest.mark.parametrize("alert", ALERTS, ids=name_of)
def test_every_alert_has_a_test_in_which_it_fires_and_one_in_which_it_does_not(alert: Rule) -> None:
    """One that fires whatever happens is as useless as one that never does."""
    checks = [
        check["exp_alerts"]
        for path in UNIT_TESTS
        for test in read(path)["tests"]
        for check in test.get("alert_rule_test", [])
        if check["alertname"] == alert.name
    ]
    assert any(checks)
    assert not all(checks)


@pytest.mark.parametrize("alert", ALERTS, ids=name_of)
def test_every_alert_has_a_runbook_with_all_its_parts(alert: Rule) -> None:
    """In the order in which somebody who was woken up needs them."""
    text = runbooks()[alert.name]
    found = re.findall(r"^\* \*\*([A-Z][a-z ]+)\*\*: \S", text, re.MULTILINE)
    assert tuple(found) == PARTS
    assert f"*{alert.labels['severity']}*" in text


def test_no_runbook_is_left_of_an_alert_that_is_gone() -> None:
    """And none is there twice."""
    assert sorted(runbooks()) == sorted(alert.name for alert in ALERTS)


def test_clients_that_leave_and_frontends_that_have_enough_are_no_errors() -> None:
    """No alert looks for them; where they are named, it is as a good end of a request."""
    for rule in rules():
        for match in (match for asked in asked_by(rule.expression) for match in asked.matches):
            assert not {"cancelled", "client", "publish_response"} & set(match.words)
            if "stopped_by_frontend" in match.words:
                assert "completed" in match.words


def test_bounds_that_are_reached_every_day_alert_nobody() -> None:
    """They are those of the page, and the one that has an alert of its own."""
    line = next(
        line
        for line in OPERATIONS.read_text(encoding="utf-8").splitlines()
        if line.startswith("| `dynamo_actor_bound_reached_total{bound}` | most flat;")
    )
    (alert,) = (alert for alert in ALERTS if alert.name == "DynamoActorBoundReached")
    ((asked,),) = (asked_by(alert.expression),)
    (match,) = asked.matches
    assert not match.is_wanted
    daily = set(re.findall(r"`([a-z_]+)`", line)) & {bound.value for bound in Bound}
    assert set(match.words) == daily | {Bound.KV_BLOCKS.value}


def test_a_drain_over_its_budget_is_told_before_it_is_killed_and_one_within_it_never() -> None:
    """By the worker's own arithmetic: begin and end are each seen one scrape late, and one evaluation."""
    (alert,) = (alert for alert in ALERTS if alert.name == "DynamoActorDrainOverBudget")
    (every,) = {group["interval"] for group in groups() if alert.name in names_in(group)}
    budgets = plan_budgets(DRAIN_S, OperatorTimes(grace_s=GRACE_S, termination_grace_s=KILLED_S))
    after_s, every_s = _seconds(alert.for_), _seconds(every)
    scrape_s = _seconds(read(PROMETHEUS)["scrape_configs"][1]["scrape_interval"])
    assert budgets.drain_until_s - budgets.grace_s + scrape_s < after_s
    assert budgets.grace_s + scrape_s + every_s + after_s < KILLED_S
    assert metrics_of(alert.expression) == {"dynamo_actor_worker_state"}
    (asked,) = asked_by(alert.expression)
    assert [match.words for match in asked.matches] == [(WorkerState.DRAINING.value,)]


def test_what_reads_a_day_or_more_is_computed_once_a_minute() -> None:
    """Three days of samples every ten seconds would be most of what a small Prometheus does."""
    reading = [group for group in groups() if _longest_s(group) >= DAY_S]
    names = {group["name"] for group in reading}
    assert names >= {"dynamo-actor-day", "dynamo-actor-availability", "dynamo-actor-slo"}
    assert {group["interval"] for group in reading} == {"1m"}


def groups() -> list[dict[str, Any]]:
    """Of all files, as they are written."""
    return [group for path in FILES for group in read(path)["groups"]]


def names_in(group: dict[str, Any]) -> set[str]:
    """Of its alerts."""
    return {rule["alert"] for rule in group["rules"] if "alert" in rule}


def _seconds(duration: str) -> float:
    return promql_parser.parse_duration(duration).total_seconds()


def _longest_s(group: dict[str, Any]) -> float:
    """The longest window that one of its rules reads, or what it reads was made of."""
    windows = [window for rule in group["rules"] for window in WINDOW.findall(rule["expr"])]
    return max(map(_seconds, windows), default=0.0)
