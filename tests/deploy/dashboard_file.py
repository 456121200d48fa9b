"""The committed dashboard, as Grafana reads it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
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


@dataclass(frozen=True, slots=True)
class Choice:
    """A box that offers what these series have as this label, or what its pattern takes of that."""

    name: str
    selector: str
    label: str
    pattern: str


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


def choices() -> list[Choice]:
    """Every box whose values are looked up."""
    found: list[Choice] = []
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            asked = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
            assert asked
            found.append(Choice(variable["name"], asked[1], asked[2], variable["regex"]))
    return found


def expressions() -> list[str]:
    """Every query of a panel, an annotation or a variable."""
    of_panels = [target["expr"] for panel in panels() for target in panel["targets"]]
    of_marks = [mark["expr"] for mark in dashboard()["annotations"]["list"]]
    return of_panels + of_marks + [choice.selector for choice in choices()]


def filled(
    expression: str, choice: Mapping[str, str] = MappingProxyType({}), own: Mapping[str, str] = _OWN
) -> str:
    """As Prometheus gets it: every choice is `chosen` but those that are given. own: Grafana's variables."""
    for name, value in own.items():
        expression = expression.replace(name, value)
    return _VARIABLE.sub(lambda found: choice.get(found[1], "chosen"), expression)


def variables_of(text: str) -> set[str]:
    """Names of the variables in it, Grafana's own left out."""
    return {name for name in _VARIABLE.findall(text) if not name.startswith("__")}


def trace_links() -> list[tuple[str, str]]:
    """The title of each link to traces, and its query."""
    titles = [link["title"] for panel in panels() for link in panel["fieldConfig"]["defaults"]["links"]]
    queries = [search["queries"][0]["query"] for search in trace_searches()]
    return list(dict.fromkeys(zip(titles, queries, strict=True)))


def trace_searches() -> list[dict[str, Any]]:
    """What each link to traces asks, as Explore reads it from the address."""
    links = [link for panel in panels() for link in panel["fieldConfig"]["defaults"]["links"]]
    return [
        json.loads(parse_qs(urlsplit(link["url"]).query, strict_parsing=True)["panes"][0])["traces"]
        for link in links
    ]
