"""One request as a few lines of a terminal: where its time went, and why it ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.text import Text

from protocols.telemetry import CancelReason, Outcome
from service.inspection.journeys import Journey, Life
from service.inspection.pace import steady_stretches
from service.inspection.printable import printable
from service.inspection.story import Story, Worker
from service.inspection.strip import Strip, glyphs_for
from service.inspection.wording import cause, duration, figures, headline, life_line, stages, whereabouts

# Below this a bar says nothing.
NARROWEST = 48
_LABEL = 10
_FIGURE = 13
# In lines. An engine's words can be long.
_LONGEST_CAUSE = 4
_STYLES = {
    "intake": "bright_black",
    "resolve": "magenta",
    "execute": "default",
    "  waiting": "yellow",
    "  prefill": "blue",
    "stream": "green",
}
# Who cancels is the client; the worker, or its operator, ends a request early.
_LEFT = (CancelReason.CLIENT, None)
_GOOD = frozenset({Outcome.COMPLETED, Outcome.STOPPED_BY_FRONTEND})


def render_journey(journey: Journey, width: int = 80, encoding: str = "utf-8") -> list[Text]:
    """A headline, one bar for each stage of each life, and the figures; no line is wider than ``width``.

    Without colours it says the same. Where the encoding has no blocks and arrows, ASCII stands for them.
    """
    return list(_Drawing(journey, max(width, NARROWEST), encoding).lines())


def render_story(story: Story, width: int = 80) -> list[str]:
    """One life on its own, as plain text."""
    return [line.plain for line in render_journey(Journey((Life(Worker(), story),)), width)]


class _Drawing:
    """All lines of one request share its time axis."""

    def __init__(self, journey: Journey, width: int, encoding: str) -> None:
        self._journey = journey
        self._width = width
        self._encoding = encoding
        self._glyphs = glyphs_for(encoding)

    def lines(self) -> Iterator[Text]:
        journey = self._journey
        story = journey.last.story
        yield self._line(headline(journey), "bold" if story.outcome in _GOOD else "bold red")
        yield from self._wrapped(whereabouts(journey), "dim")
        if journey.is_beginning_missing:
            yield from self._wrapped(
                ["it began on another worker", "which was not asked or has forgotten it"], "yellow"
            )
        for number, life in enumerate(journey.lives, 1):
            if len(journey.lives) > 1:
                yield from self._joint(life)
                yield from self._wrapped(life_line(number, life), "bold")
            yield from self._rows(life)
            yield from self._wrapped(figures(life.story), "default")
        if story.is_moved:
            yield from self._wrapped(
                ["a frontend can continue it", "on a worker which was not asked or has forgotten it"],
                "yellow",
            )
        if text := cause(story):
            lines = chop_cells(self._plain(f"because {text}"), self._width)
            yield from (Text(line, "red") for line in lines[:_LONGEST_CAUSE])

    def _joint(self, life: Life) -> Iterator[Text]:
        """What lies between two lives."""
        if life.gap_ms is not None:
            strip = self._strip()
            strip.fill(life.start_ms - life.gap_ms, life.start_ms, self._glyphs.gap, "red")
            yield self._row("gap", strip, duration(life.gap_ms))
        elif life is not self._journey.first:
            contradiction = f"clocks differ by {duration(life.overlap_ms)} or more"
            yield from self._wrapped([contradiction, "so the gap is not known"], "yellow")

    def _rows(self, life: Life) -> Iterator[Text]:
        for label, start_ms, duration_ms in stages(life.story):
            strip = self._strip()
            begun_ms = life.start_ms + start_ms
            style = _STYLES.get(label, "default")
            strip.fill(begun_ms, begun_ms + duration_ms, self._glyphs.bar, style)
            yield self._row(label, strip, duration(duration_ms))
        yield from self._events(life)

    def _events(self, life: Life) -> Iterator[Text]:
        """Moments inside the stages: tokens, lost memory, the early end."""
        story, glyphs = life.story, self._glyphs
        if story.ttft_ms is not None:
            strip = self._strip()
            ended_ms = story.duration_ms if story.cancelled_ms is None else story.cancelled_ms
            for start_ms, end_ms in steady_stretches(story.marks, ended_ms):
                strip.fill(life.start_ms + start_ms, life.start_ms + end_ms, glyphs.mark, "green")
            for mark in story.marks:
                strip.put(life.start_ms + mark.at_ms, glyphs.mark, "green")
            strip.put(life.start_ms + story.ttft_ms, glyphs.first_token, "bold green")
            yield self._row("tokens", strip, f"{story.chunks} chunks")
        if story.preemptions:
            strip = self._strip()
            for at_ms in story.preempted_ms:
                strip.put(life.start_ms + at_ms, glyphs.preempted, "yellow")
            yield self._row("preempted", strip, f"{story.preemptions} times")
        if story.cancelled_ms is not None:
            strip = self._strip()
            at_ms = life.start_ms + story.cancelled_ms
            strip.fill(at_ms, life.end_ms, glyphs.ending, "red")
            strip.put(at_ms, glyphs.cancelled, "bold red")
            label = "cancelled" if story.cancel_reason in _LEFT else "early end"
            yield self._row(label, strip, self._plain(story.cancel_reason or ""))

    def _strip(self) -> Strip:
        cells = self._width - _LABEL - _FIGURE
        return Strip(self._journey.duration_ms, cells, self._glyphs)

    def _row(self, label: str, strip: Strip, figure: str) -> Text:
        shown = self._cut(figure, _FIGURE - 1)
        return Text.assemble(
            set_cell_size(self._plain(label), _LABEL), strip.text(), " " * (_FIGURE - cell_len(shown)), shown
        )

    def _line(self, text: str, style: str) -> Text:
        return Text(self._cut(self._plain(text), self._width), style)

    def _wrapped(self, parts: Iterable[str], style: str) -> Iterator[Text]:
        """Parts in one line with commas, or in as many as it takes."""
        line = ""
        for part in parts:
            longer = f"{line}, {part}" if line else part
            if line and cell_len(self._plain(longer)) >= self._width:
                yield self._line(f"{line},", style)
                longer = part
            line = longer
        if line:
            yield self._line(line, style)

    def _plain(self, text: str) -> str:
        return printable(text, self._encoding)

    def _cut(self, text: str, width: int) -> str:
        if cell_len(text) <= width:
            return text
        return set_cell_size(text, width - 1) + self._glyphs.cut
