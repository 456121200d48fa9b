"""The middle of a line of the waterfall: a stretch of time as so many cells of a terminal."""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple

from rich.text import Text


class Glyphs(NamedTuple):
    """One column wide each."""

    track: str
    bar: str
    gap: str
    first_token: str
    mark: str
    preempted: str
    cancelled: str
    ending: str
    cut: str


UNICODE = Glyphs("·", "█", "░", "◆", "│", "▼", "✕", "━", "…")
ASCII = Glyphs(".", "#", "~", "*", "|", "v", "x", "=", ">")


def glyphs_for(encoding: str) -> Glyphs:
    """The prettier ones where they can be written."""
    try:
        "".join(UNICODE).encode(encoding)
    except UnicodeEncodeError:
        return ASCII
    return UNICODE


class Strip:
    """A row of cells for ``total_ms``; what is painted later lies on top.

    A stretch covers every cell that it touches, so the shortest is still seen.
    """

    def __init__(self, total_ms: float, cells: int, glyphs: Glyphs) -> None:
        self._total_ms = total_ms
        self._cells = [(glyphs.track, "dim")] * cells

    def fill(self, start_ms: float, end_ms: float, glyph: str, style: str) -> None:
        """From one moment to another."""
        for cell in range(self._cell(start_ms), self._cell(end_ms) + 1):
            self._cells[cell] = (glyph, style)

    def put(self, at_ms: float, glyph: str, style: str) -> None:
        """At one moment."""
        self._cells[self._cell(at_ms)] = (glyph, style)

    def text(self) -> Text:
        """All cells, one column each."""
        return Text.assemble(
            *((glyph * len(list(run)), style) for (glyph, style), run in groupby(self._cells))
        )

    def _cell(self, at_ms: float) -> int:
        last = len(self._cells) - 1
        if self._total_ms <= 0:
            return 0
        # A total may be so short that the quotient of two times is no number any more.
        return min(max(int(min(at_ms / self._total_ms, 1.0) * len(self._cells)), 0), last)
