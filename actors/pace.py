"""When the tokens of one request came: enough to draw it and to say how it went, whatever its length."""

from __future__ import annotations

from protocols.telemetry import Mark

MOST_MARKS = 64
"""Beside the last one. Even. A drawing has no room for more, and the stories that are kept stay small."""


class Pace:
    """Marks that thin out by themselves. Belongs to the streamer.

    The first steps are marked one by one. Whenever there is no more room every second mark goes, and from
    then on only every second step of those before is marked: the marks stay evenly spread over the request.
    """

    __slots__ = ("_is_marked", "_last_s", "_marks_s", "_steps", "_stride", "_tokens", "tokens")

    def __init__(self) -> None:
        self.tokens = 0
        self._steps = 0
        self._last_s: float | None = None
        # Of so many steps one is marked. Whether the last one was.
        self._stride = 1
        self._is_marked = False
        self._marks_s: list[float] = []
        self._tokens: list[int] = []

    def note(self, at_s: float, tokens: int) -> None:
        """A step gave so many tokens, at this monotonic time. All choices of one step share a mark."""
        self.tokens += tokens
        if at_s != self._last_s:
            self._last_s = at_s
            self._is_marked = self._steps % self._stride == 0
            self._steps += 1
            if self._is_marked:
                self._mark(at_s)
        elif self._is_marked:
            self._tokens[-1] = self.tokens

    def _mark(self, at_s: float) -> None:
        if len(self._marks_s) == MOST_MARKS:
            del self._marks_s[1::2], self._tokens[1::2]
            self._stride *= 2
        self._marks_s.append(at_s)
        self._tokens.append(self.tokens)

    def marks(self) -> tuple[Mark, ...]:
        """In their order, the first step's and the last one's among them; at most MOST_MARKS + 1."""
        marks = [Mark(at_s, tokens) for at_s, tokens in zip(self._marks_s, self._tokens, strict=True)]
        if self._last_s is not None and not self._is_marked:
            marks.append(Mark(self._last_s, self.tokens))
        return tuple(marks)
