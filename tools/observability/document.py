"""The dashboard as a whole: its variables, its links, and its rows."""

from __future__ import annotations

from tools.observability.grafana import SOURCE, Json, JsonObject, layout
from tools.observability.rows import ROWS
from tools.observability.selecting import ours

UID = "dynamo-actor-worker"
TITLE = "Dynamo actor worker"
_DOCS = "https://github.com/dynamo-actor-worker/dynamo-actor-worker/blob/main/docs/"
# What every worker shows for as long as it serves, with all labels to choose by.
_EVERYBODY = "dynamo_actor_build_info"
_CHOSEN_NAMESPACE = 'dynamo_namespace=~"$namespace(-[0-9a-f]{8})?"'


def dashboard() -> JsonObject:
    """Grafana's JSON, of the version that Grafana 12 writes."""
    return {
        "id": None,
        "uid": UID,
        "title": TITLE,
        "description": "Workers of Dynamo, made of actors: requests, actors, engines, life and drain.",
        "tags": ["dynamo", "actor-worker", "llm"],
        "schemaVersion": 41,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "timepicker": {},
        "fiscalYearStartMonth": 0,
        "liveNow": False,
        "weekStart": "",
        "links": [
            _link("Runbooks", "operations.md#runbooks"),
            _link("Metrics", "metrics.md"),
            _link("Tracing", "tracing.md"),
        ],
        "annotations": {"list": [_drains()]},
        "templating": {"list": _variables()},
        "panels": layout(ROWS),
    }


def _link(title: str, page: str) -> JsonObject:
    return {
        "title": title, "url": _DOCS + page, "type": "link", "icon": "doc", "targetBlank": True,
        "asDropdown": False, "includeVars": False, "keepTime": False, "tags": [], "tooltip": "",
    }  # fmt: skip


def _drains() -> JsonObject:
    return {
        "name": "Drains",
        "datasource": dict(SOURCE),
        "enable": True,
        "hide": False,
        "iconColor": "orange",
        "expr": f"sum by (instance) ({ours('worker_state', state='draining')}) > 0",
        "titleFormat": "Drain",
        "textFormat": "{{instance}}",
        "step": "30s",
    }


def _variables() -> list[Json]:
    return [
        _source("datasource", "Prometheus", "prometheus"),
        _source("tempo", "Traces", "tempo"),
        _choice("namespace", "Namespace", "dynamo_namespace", "", "/^(.+?)(?:-[0-9a-f]{8})?$/"),
        _choice("model", "Model", "model_name", _CHOSEN_NAMESPACE),
        _choice("role", "Role", "dynamo_component", f'{_CHOSEN_NAMESPACE}, model_name=~"$model"'),
        _choice(
            "worker", "Worker", "instance",
            f'{_CHOSEN_NAMESPACE}, model_name=~"$model", dynamo_component=~"$role"',
        ),
        _service(),
    ]  # fmt: skip


def _source(name: str, label: str, kind: str) -> JsonObject:
    return {
        "name": name, "label": label, "type": "datasource", "query": kind, "regex": "", "hide": 0,
        "multi": False, "includeAll": False, "refresh": 1, "skipUrlSync": False,
        "current": {"selected": True, "text": kind, "value": kind}, "options": [],
    }  # fmt: skip


def _choice(name: str, label: str, asked: str, among: str, regex: str = "") -> JsonObject:
    """Any number of what workers have as this label."""
    query = f"label_values({_EVERYBODY}{f'{{{among}}}' if among else ''}, {asked})"
    return {
        "name": name, "label": label, "type": "query", "datasource": dict(SOURCE), "definition": query,
        "query": {"query": query, "refId": "Variable"}, "regex": regex, "hide": 0, "sort": 1,
        "multi": True, "includeAll": True, "allValue": ".+", "refresh": 2, "skipUrlSync": False,
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]}, "options": [],
    }  # fmt: skip


def _service() -> JsonObject:
    """What traces call the service; no figure has it. All names in the files of ours match."""
    names = "dynamo.*"
    return {
        "name": "service", "label": "Service in traces", "type": "textbox", "query": names, "hide": 0,
        "description": "A pattern for OTEL_SERVICE_NAME of the workers; .* is any.", "skipUrlSync": False,
        "current": {"selected": True, "text": names, "value": names},
        "options": [{"selected": True, "text": names, "value": names}],
    }  # fmt: skip
