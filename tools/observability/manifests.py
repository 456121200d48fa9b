"""The same dashboard and rules as objects of Kubernetes."""

# PyYAML's stubs leave out the types of what it represents.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from pathlib import Path

import yaml

_HEADER = """\
# Written by `python -m tools.observability` from {source}: change that, not this.
# {hint}
"""
# Lines of the dashboard, which nobody reads here.
_LONG_LINES = "# yamllint disable rule:line-length\n"
_NAMESPACE = "monitoring"
_SELECTED = """\
kube-prometheus-stack looks only at rules with the label of its own Helm release, and says nothing of others:
#   kubectl -n monitoring label prometheusrule dynamo-actor-worker release=NAME
# Which label it is: kubectl -n monitoring get prometheus -o jsonpath='{.items[*].spec.ruleSelector}'"""
_LABELS = {"app.kubernetes.io/name": "dynamo-actor-worker", "app.kubernetes.io/part-of": "dynamo"}


class _Readable(yaml.SafeDumper):
    """Long texts as they are written, so that a change of one line is a change of one line."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Readable.add_representer(str, _text)


def dashboard_map(name: str, dashboard: str) -> str:
    """A ConfigMap that Grafana's sidecar finds by its label. dashboard: the file's text, as it is."""
    return _LONG_LINES + _written(
        "deploy/observability/grafana",
        "Grafana's sidecar looks for the label grafana_dashboard, in the namespaces that it is told.",
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": "grafana-dynamo-actor-worker-dashboard",
                "namespace": _NAMESPACE,
                "labels": {"grafana_dashboard": "1", **_LABELS},
            },
            "data": {name: dashboard},
        },
    )


def prometheus_rule(files: list[Path]) -> str:
    """All groups of all rule files as one object of the Prometheus operator."""
    groups = [group for path in files for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]]
    return _written(
        "deploy/observability/rules",
        _SELECTED,
        {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PrometheusRule",
            "metadata": {"name": "dynamo-actor-worker", "namespace": _NAMESPACE, "labels": dict(_LABELS)},
            "spec": {"groups": groups},
        },
    )


def _written(source: str, hint: str, manifest: dict[str, object]) -> str:
    body = yaml.dump(manifest, Dumper=_Readable, sort_keys=False, width=118, allow_unicode=True)
    return _HEADER.format(source=source, hint=hint) + body
