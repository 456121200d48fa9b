"""Dashboard and rules as a cluster gets them: the same as on a single machine, in a size that it takes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]  # published without types
import pytest

from tests.deploy.dashboard_file import DASHBOARD
from tests.deploy.rule_files import FILES, REPOSITORY, read
from tests.e2e.servers import tool

OBJECTS = REPOSITORY / "deploy" / "observability" / "k8s"
# Of all annotations of one object; `kubectl apply` keeps the whole object in one of them.
ANNOTATIONS_BYTES = 256 * 1024


@pytest.fixture(scope="module")
def dashboard_map() -> Any:
    return read(OBJECTS / "grafana-dashboard-configmap.yaml")


@pytest.fixture(scope="module")
def prometheus_rule() -> Any:
    return read(OBJECTS / "prometheus-rule.yaml")


def test_the_config_map_has_the_very_file(dashboard_map: Any) -> None:
    """Under its own name, and with the label by which Grafana's sidecar finds it."""
    assert dashboard_map["kind"] == "ConfigMap"
    assert dashboard_map["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert dashboard_map["data"] == {DASHBOARD.name: DASHBOARD.read_text(encoding="utf-8")}


def test_the_config_map_is_one(dashboard_map: Any) -> None:
    """By the definition of the oldest Kubernetes that Dynamo's platform takes."""
    kubernetes_validate.validate(dashboard_map, "1.30", strict=True)


def test_the_config_map_can_be_applied(dashboard_map: Any) -> None:
    """`kubectl apply` refuses an object that does not fit into an annotation."""
    assert len(json.dumps(dashboard_map).encode()) < ANNOTATIONS_BYTES


def test_the_rule_object_has_every_group_of_every_file(prometheus_rule: Any) -> None:
    """As it is written there, in the order of the files."""
    assert prometheus_rule["kind"] == "PrometheusRule"
    assert prometheus_rule["spec"]["groups"] == [group for path in FILES for group in read(path)["groups"]]


def test_the_rule_object_says_by_which_label_it_is_found(prometheus_rule: Any) -> None:
    """The usual chart passes over rules without the name of its release: the command stands at the top."""
    top = (OBJECTS / "prometheus-rule.yaml").read_text(encoding="utf-8").partition("\napiVersion")[0]
    place = prometheus_rule["metadata"]
    command = f"kubectl -n {place['namespace']} label prometheusrule {place['name']} release=NAME"
    page = (REPOSITORY / "deploy" / "README.md").read_text(encoding="utf-8")
    assert command in top
    assert command in page
    assert "kubectl -n dynamo label podmonitor dynamo-frontend dynamo-backend release=NAME" in page


def test_prometheus_accepts_the_groups_of_the_rule_object(prometheus_rule: Any, tmp_path: Path) -> None:
    """What the operator makes of it is a file of rules."""
    path = tmp_path / "rules.yml"
    # JSON is YAML.
    path.write_text(json.dumps(prometheus_rule["spec"]), encoding="utf-8")
    ran = subprocess.run(
        [tool("promtool"), "check", "rules", str(path)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
