"""Figures of a run: what was measured beside a fault, as rows of one Markdown table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

_HEAD = ("row", "what", "figure", "goal")


@dataclass(frozen=True, slots=True)
class Figure:
    """One line. row: its row of the fault matrix, or a word for what has none there."""

    row: str
    what: str
    value: str
    goal: str

    @property
    def order(self) -> tuple[int, str]:
        """Numbers first, in their order."""
        digits = "".join(character for character in self.row if character.isdigit())
        return int(digits or 1000), self.row


@dataclass(slots=True)
class Figures:
    """Everything that a run has recorded."""

    rows: list[Figure] = field(default_factory=list)

    def record(self, *, row: int | str, what: str, value: str, goal: str) -> None:
        """Note one figure; a test asserts beside it what must hold."""
        self.rows.append(Figure(str(row), what, value, goal))

    def markdown(self) -> str:
        """The table, in the order of the matrix; empty when nothing was recorded."""
        if not self.rows:
            return ""
        lines = [_line(_HEAD), _line(["---"] * len(_HEAD))]
        ordered = sorted(self.rows, key=lambda figure: figure.order)
        lines += [_line([row.row, row.what, row.value, row.goal]) for row in ordered]
        return "\n".join(lines) + "\n"


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed; 0 without any."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
