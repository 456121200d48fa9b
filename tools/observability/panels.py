"""What a panel is, before anything of Grafana: a question, how it is drawn, and how it is judged."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tools.observability.traces import TraceSearch

RED, ORANGE, YELLOW, GREEN, BLUE, GREY = "red", "orange", "yellow", "green", "blue", "#808080"


class Kind(Enum):
    """How it is drawn."""

    STAT = "stat"
    LINES = "timeseries"
    HEATMAP = "heatmap"
    STATES = "state-timeline"
    TABLE = "table"
    NOTE = "text"


class Unit(Enum):
    """Grafana's name of a unit."""

    NONE = "short"
    SECONDS = "s"
    SHARE = "percentunit"
    PER_SECOND = "reqps"
    RATE = "cps"


@dataclass(frozen=True, slots=True)
class Query:
    """One expression. legend: of each of its series, in Grafana's notation."""

    expression: str
    legend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One question and its answers.

    normal, closer: what is usual, and when somebody should look closer; both are shown with `about`.
    width: of 24 columns. thresholds: colours from a value on; the first is below all of them.
    colours: of single series, by their legend. words: what values mean that stand for something.
    """

    title: str
    about: str
    normal: str
    closer: str
    queries: tuple[Query, ...]
    kind: Kind = Kind.LINES
    unit: Unit = Unit.NONE
    width: int = 8
    height: int = 8
    is_stacked: bool = False
    thresholds: tuple[tuple[float | None, str], ...] = ((None, GREEN),)
    colours: tuple[tuple[str, str], ...] = ()
    words: tuple[tuple[int, str, str], ...] = ()
    traces: tuple[TraceSearch, ...] = ()

    @property
    def description(self) -> str:
        """As it is shown when somebody points at the panel."""
        return f"{self.about} Normal: {self.normal} Look closer when {self.closer}"


@dataclass(frozen=True, slots=True)
class Note:
    """A text in Markdown."""

    title: str
    text: str
    width: int = 24
    height: int = 5
    kind: Kind = Kind.NOTE


@dataclass(frozen=True, slots=True)
class Row:
    """A headline and what stands below it, from left to right."""

    title: str
    panels: tuple[Panel | Note, ...]


def figure(
    title: str, told: tuple[str, str, str], query: str, unit: Unit, *thresholds: tuple[float | None, str]
) -> Panel:
    """A single number at the top. told: what it is, what is normal, when to look closer."""
    about, normal, closer = told
    return Panel(
        title=title,
        about=about,
        normal=normal,
        closer=closer,
        queries=(Query(query, title),),
        kind=Kind.STAT,
        unit=unit,
        width=3,
        height=4,
        thresholds=thresholds or ((None, BLUE),),
    )
