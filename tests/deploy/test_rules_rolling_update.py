"""A rolling update on a good day alerts nobody, at no moment of it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.deploy.promql import metrics_of
from tests.deploy.rolling_update import STEP_S, STEPS, update
from tests.deploy.rule_files import FILES, RECORDED, rules
from tests.e2e.servers import tool

END = f"{STEPS * STEP_S}s"
FIRED = f'count by (alertname) (count_over_time(ALERTS{{alertstate="firing"}}[{END}]))'
DRAINED = f'count(max_over_time(dynamo_actor_worker_state{{state="drained"}}[{END}]) == 1)'

pytestmark = pytest.mark.timeout(120)


def watch(folder: Path, series: list[dict[str, str]], fired: list[str], drained: int) -> None:
    """Let all rules look at the whole time; afterwards exactly these have fired, and so many have drained."""
    checks = [
        {
            "expr": FIRED,
            "eval_time": END,
            "exp_samples": [_sample(f'{{alertname="{one}"}}', 1) for one in fired],
        },
        {"expr": DRAINED, "eval_time": END, "exp_samples": [_sample("{}", drained)]},
    ]
    groups = list(dict.fromkeys(rule.group for rule in rules()))
    wanted = {
        "rule_files": [str(path) for path in FILES],
        "evaluation_interval": f"{STEP_S}s",
        # What is recorded comes before who reads it.
        "group_eval_order": groups,
        "tests": [{"interval": f"{STEP_S}s", "input_series": series, "promql_expr_test": checks}],
    }
    path = folder / "update_test.yml"
    # JSON is YAML.
    path.write_text(json.dumps(wanted), encoding="utf-8")
    ran = subprocess.run(
        [tool("promtool"), "test", "rules", str(path)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def _sample(labels: str, value: int) -> dict[str, str | int]:
    return {"labels": labels, "value": value}


def test_workers_that_make_place_one_after_the_other_alert_nobody(tmp_path: Path) -> None:
    """Each drains, hands seven requests over, refuses late ones, loses its last spans, and is gone."""
    watch(tmp_path, update("llm", "llm"), [], 2)


def test_generations_with_a_namespace_each_alert_nobody(tmp_path: Path) -> None:
    """So Dynamo's operator updates: the model is served all the time, though its old namespace is empty."""
    watch(tmp_path, update("llm-0123abcd", "llm-4567cdef"), [], 2)


def test_an_update_that_loses_requests_is_told(tmp_path: Path) -> None:
    """Three of seven could not be continued: these tests can fail."""
    watch(tmp_path, update("llm", "llm", moved=4), ["DynamoActorRequestsLost"], 2)


def test_the_fleet_shows_all_that_the_rules_read() -> None:
    """An alert about what is not there keeps quiet whatever happens."""
    shown = {series["series"].partition("{")[0] for series in update("llm", "llm")}
    read = {name for rule in rules() for name in metrics_of(rule.expression)}
    assert read - RECORDED - shown == set()
