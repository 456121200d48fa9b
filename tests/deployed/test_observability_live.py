"""Rules and dashboard on real figures: of real workers that serve, refuse and drain, by a real Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan

import pytest

from tests.built_in import built_in_model
from tests.deploy.dashboard_file import filled, panels
from tests.deploy.prometheus_api import PrometheusApi
from tests.deploy.rules_prometheus import PATIENCE_S, RulesPrometheus
from tests.e2e.stacks import Stack, hang_up
from tests.e2e.tiny_model import write_tiny_model
from tests.e2e.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.timeout(240)]

PROMPT = "one two three"
# What a good day has none of, and what this engine does not tell.
EMPTY = {
    "Firing alerts",
    "TensorRT-LLM's own queue",
    "Memory that sleeps",
    "Bounds that were reached",
    "KV events for routers",
    "Logits processors, time for a token",
}
# Of several questions of a panel these may have no answer, by their legend.
UNANSWERED = {"moved by frontends"}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Two workers with a tiny model, so that one can be drained."""
    folder = tmp_path_factory.mktemp("live")
    model = write_tiny_model(folder / "model", built_in_model())
    options = ["--engine", "torch", "--model", str(model), "--max-num-seqs", "4"]
    with Stack(folder / "stack", options, workers=2) as running:
        yield running


@pytest.fixture(scope="module")
def prometheus(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusApi]:
    """With the shipped rules, in steps of a second, and everything seen: ends of each kind, and a drain."""
    folder = tmp_path_factory.mktemp("prometheus")
    with RulesPrometheus(folder, stack.workers) as api:
        wait_until(lambda: api.value("count(dynamo_actor_build_info)") == [2.0], "not scraped", PATIENCE_S)
        ask(stack)
        seen = 'sum(dynamo_actor_requests_total) + sum(dynamo_actor_worker_state{state="drained"})'
        wait_until(lambda: sum(api.value(seen)) >= 9, lambda: api.value(seen), PATIENCE_S)
        yield api


def ask(stack: Stack) -> None:
    """Six get all they ask for, one is refused, of one the client goes; then one worker is drained."""
    for _ in range(6):
        status, _body = stack.complete(PROMPT, max_tokens=8, ignore_eos=True)
        assert status == 200
    stack.complete(PROMPT, max_tokens=8, n=5)
    hang_up(stack.http_port, stack.model(), PROMPT, 300, max_tokens=1900, ignore_eos=True)
    stack.workers[1].control("drain", {"timeout_s": 20})


def test_every_rule_can_be_evaluated(prometheus: PrometheusApi) -> None:
    """Of two workers with all their labels; what joins one with another finds one."""

    def have_run() -> bool:
        return all(rule["health"] == "ok" for rule in prometheus.rules())

    wait_until(have_run, lambda: [r for r in prometheus.rules() if r["health"] != "ok"], PATIENCE_S)
    assert {rule["name"] for rule in prometheus.rules() if rule["type"] == "alerting"}


def test_every_service_level_has_its_figures(prometheus: PrometheusApi) -> None:
    """All windows of all three, from the first minutes on."""
    recorded = [rule["name"] for rule in prometheus.rules() if rule["type"] == "recording"]
    assert recorded

    def empty() -> list[str]:
        return [name for name in recorded if not prometheus.value(name)]

    wait_until(lambda: not empty(), empty, PATIENCE_S)


def test_a_good_day_with_a_drain_by_hand_fires_nothing(prometheus: PrometheusApi) -> None:
    """One worker left, the other serves; one request was refused for its own mistake, one client left."""
    assert [alert for alert in prometheus.alerts() if alert["state"] == "firing"] == []


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel["title"])
def test_every_panel_shows_something(prometheus: PrometheusApi, panel: dict) -> None:
    """With the choices that the dashboard opens with; but for what this day has none of."""
    for target in panel["targets"]:
        expression = filled(target["expr"].replace("$__rate_interval", "5m")).replace("chosen", ".+")
        values = prometheus.value(expression)
        if panel["title"] not in EMPTY and target["legendFormat"] not in UNANSWERED:
            assert not all(isnan(value) for value in values), expression


def test_the_state_of_each_worker_is_told_by_its_number(prometheus: PrometheusApi) -> None:
    """One serves, one is drained."""
    (panel,) = (panel for panel in panels() if panel["title"] == "Life of workers")
    expression = filled(panel["targets"][0]["expr"]).replace("chosen", ".+")
    words = panel["fieldConfig"]["defaults"]["mappings"][0]["options"]
    assert {words[f"{value:g}"]["text"] for value in prometheus.value(expression)} == {"serving", "drained"}
