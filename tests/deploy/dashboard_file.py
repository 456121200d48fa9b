"""The committed dashboard, as Grafana reads it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.deploy.rule_files import REPOSITORY

DASHBOARD = REPOSITORY / "deploy" / "observability" / "grafana" / "dynamo-actor-worker.json"
# What Grafana puts in place of its own variables.
_OWN = {"$__rate_interval": "1m", "$__range": "1h", "$__interval": "30s"}
_VARIABLE = re.compile(r"\$\{?(\w+)\}?")


@dataclass(frozen=True, slots=True)
class Place:
    """Columns and lines that a panel covers: half open."""

    left: int
    top: int
    right: int
    bottom: int

    def is_over(self, other: Place) -> bool:
        """Whether the two share a cell."""
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )


@cache
def dashboard() -> Mapping[str, Any]:
    """The whole document."""
    found: Mapping[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return found


def panels() -> list[dict[str, Any]]:
    """Everything that shows figures: no headlines and no notes."""
    return [panel for panel in dashboard()["panels"] if panel["type"] not in {"row", "text"}]


def notes() -> list[str]:
    """The texts between them."""
    return [panel["options"]["content"] for panel in dashboard()["panels"] if panel["type"] == "text"]


def place_of(panel: Mapping[str, Any]) -> Place:
    """Where it stands."""
    grid = panel["gridPos"]
    return Place(grid["x"], grid["y"], grid["x"] + grid["w"], grid["y"] + grid["h"])


def expressions() -> list[str]:
    """Every query of a panel, an annotation or a variable."""
    of_panels = [target["expr"] for panel in panels() for target in panel["targets"]]
    of_marks = [mark["expr"] for mark in dashboard()["annotations"]["list"]]
    of_choices = [
        variable["query"]["query"].removeprefix("label_values(").rpartition(",")[0]
        for variable in dashboard()["templating"]["list"]
        if variable["type"] == "query"
    ]
    return of_panels + of_marks + of_choices


def filled(expression: str) -> str:
    """As Prometheus gets it: every choice is `chosen`."""
    for name, value in _OWN.items():
        expression = expression.replace(name, value)
    return _VARIABLE.sub("chosen", expression)


def variables_of(text: str) -> set[str]:
    """Names of the variables in it, Grafana's own left out."""
    return {name for name in _VARIABLE.findall(text) if not name.startswith("__")}


def trace_searches() -> list[dict[str, Any]]:
    """What each link to traces asks, as Explore reads it from the address."""
    links = [link for panel in panels() for link in panel["fieldConfig"]["defaults"]["links"]]
    return [
        json.loads(parse_qs(urlsplit(link["url"]).query, strict_parsing=True)["panes"][0])["traces"]
        for link in links
    ]
