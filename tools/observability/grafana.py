"""Panels in Grafana's JSON. Places and numbers follow from the order alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from string import ascii_uppercase
from typing import TypeAlias

from tools.observability.panels import Kind, Note, Panel, Query, Row

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"
JsonObject: TypeAlias = dict[str, Json]

COLUMNS = 24
SOURCE: JsonObject = {"type": "prometheus", "uid": "${datasource}"}


def layout(rows: Sequence[Row]) -> list[Json]:
    """All panels with a number each, none on top of another."""
    numbers = iter(range(1, 10_000))
    top, laid = 0, list[Json]()
    for row in rows:
        laid.append(_headline(row, next(numbers), top))
        top += 1
        for panel, left, line in _lines(row.panels, top):
            laid.append(_placed(panel, next(numbers), left, line))
            top = max(top, line + panel.height)
    return laid


def _lines(panels: Sequence[Panel | Note], top: int) -> Iterator[tuple[Panel | Note, int, int]]:
    """Each with its column and its line: from left to right, below what is there when a line is full."""
    left, tallest = 0, 0
    for panel in panels:
        if left + panel.width > COLUMNS:
            top, left, tallest = top + tallest, 0, 0
        yield panel, left, top
        left += panel.width
        tallest = max(tallest, panel.height)


def _headline(row: Row, number: int, top: int) -> JsonObject:
    place: JsonObject = {"h": 1, "w": COLUMNS, "x": 0, "y": top}
    return {
        "id": number, "type": "row", "title": row.title, "collapsed": False, "gridPos": place, "panels": [],
    }  # fmt: skip


def _placed(panel: Panel | Note, number: int, left: int, top: int) -> JsonObject:
    return {
        "id": number,
        "type": panel.kind.value,
        "title": panel.title,
        "gridPos": {"h": panel.height, "w": panel.width, "x": left, "y": top},
        **(_note(panel) if isinstance(panel, Note) else _panel(panel)),
    }


def _note(note: Note) -> JsonObject:
    return {"options": {"mode": "markdown", "content": note.text}}


def _panel(panel: Panel) -> JsonObject:
    return {
        "description": panel.description,
        "datasource": dict(SOURCE),
        "fieldConfig": {"defaults": _defaults(panel), "overrides": _overrides(panel.colours)},
        "options": _options(panel.kind),
        "targets": [
            _target(query, letter, panel.kind)
            for query, letter in zip(panel.queries, ascii_uppercase, strict=False)
        ],
    }


def _defaults(panel: Panel) -> JsonObject:
    steps: list[Json] = [{"color": colour, "value": value} for value, colour in panel.thresholds]
    defaults: JsonObject = {
        "unit": panel.unit.value,
        "thresholds": {"mode": "absolute", "steps": steps},
        "mappings": _mappings(panel),
        "links": [
            {"title": search.title, "url": search.url(), "targetBlank": True} for search in panel.traces
        ],
    }
    if panel.kind is Kind.STATES:
        defaults["custom"] = {"fillOpacity": 70, "lineWidth": 0}
    if panel.kind is Kind.LINES:
        defaults["min"] = 0
        defaults["color"] = {"mode": "palette-classic"}
        defaults["custom"] = _curve(is_stacked=panel.is_stacked, has_limits=len(panel.thresholds) > 1)
    return defaults


def _curve(*, is_stacked: bool, has_limits: bool) -> JsonObject:
    return {
        "thresholdsStyle": {"mode": "dashed" if has_limits else "off"},
        "drawStyle": "line",
        "lineWidth": 1,
        "fillOpacity": 30 if is_stacked else 8,
        "showPoints": "never",
        # A worker that is gone has no figures: no line is drawn to the next one.
        "spanNulls": False,
        "stacking": {"mode": "normal" if is_stacked else "none", "group": "A"},
    }


def _mappings(panel: Panel) -> list[Json]:
    if not panel.words:
        return []
    words: JsonObject = {
        str(value): {"text": text, "color": colour, "index": index}
        for index, (value, text, colour) in enumerate(panel.words)
    }
    return [{"type": "value", "options": words}]


def _overrides(colours: Sequence[tuple[str, str]]) -> list[Json]:
    return [
        {
            "matcher": {"id": "byName", "options": name},
            "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}],
        }
        for name, colour in colours
    ]


_LEGEND: JsonObject = {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []}
_OPTIONS: Mapping[Kind, JsonObject] = {
    Kind.STAT: {
        "colorMode": "value",
        "graphMode": "none",
        "textMode": "auto",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    },
    Kind.LINES: {"legend": _LEGEND, "tooltip": {"mode": "multi", "sort": "desc"}},
    Kind.HEATMAP: {
        # The buckets are the histogram's own.
        "calculate": False,
        "cellGap": 1,
        "color": {
            "mode": "scheme",
            "scheme": "Oranges",
            "scale": "exponential",
            "exponent": 0.5,
            "steps": 64,
        },
        "filterValues": {"le": 1e-9},
        "rowsFrame": {"layout": "auto"},
        "yAxis": {"axisPlacement": "left", "unit": "s", "reverse": False},
        "legend": {"show": True},
        "tooltip": {"mode": "single", "showColorScale": True, "yHistogram": False},
    },
    Kind.STATES: {"mergeValues": True, "rowHeight": 0.8, "showValue": "auto", "legend": _LEGEND},
    Kind.TABLE: {"showHeader": True, "cellHeight": "sm", "footer": {"show": False}},
}


def _options(kind: Kind) -> JsonObject:
    return dict(_OPTIONS[kind])


def _target(query: Query, letter: str, kind: Kind) -> JsonObject:
    # What is true now: the last value of a range is still there long after its worker has gone.
    is_now = kind in {Kind.TABLE, Kind.STAT}
    formats = {Kind.HEATMAP: "heatmap", Kind.TABLE: "table"}
    return {
        "refId": letter,
        "datasource": dict(SOURCE),
        "editorMode": "code",
        "expr": query.expression,
        "legendFormat": query.legend or "__auto",
        "format": formats.get(kind, "time_series"),
        "instant": is_now,
        "range": not is_now,
    }
