"""When the tokens of one request came: enough to draw it and to say how it went, whatever its length."""

from __future__ import annotations

from protocols.telemetry import Pace

MOST_MARKS = 64
"""Even. A drawing has no room for more, and the stories that are kept stay small."""


class Pacing:
    """Marks of steps, that thin out by themselves. Belongs to the streamer.

    The first steps are marked one by one. Whenever there is no more room every second mark goes, and from
    then on only every second step of those before is marked: the marks stay evenly spread over the request.
    """

    __slots__ = ("_at_s", "_due", "_gaps_s", "_last_s", "_stride", "_tokens", "tokens")

    def __init__(self) -> None:
        self.tokens = 0
        self._last_s: float | None = None
        # One step of so many is marked; the one that is so many ahead is the next.
        self._stride = self._due = 1
        self._at_s: list[float] = []
        self._tokens: list[int] = []
        self._gaps_s: list[float] = []

    def note(self, at_s: float, tokens: int) -> None:
        """One choice got so many tokens in the step that ended then (monotonic). Once a token: as little as
        possible. The other choices of a step do not count again.
        """
        self.tokens += tokens
        last_s = self._last_s
        if at_s == last_s:
            return
        self._last_s = at_s
        self._due -= 1
        if self._due:
            return
        self._due = self._stride
        self._at_s.append(at_s)
        self._tokens.append(self.tokens)
        self._gaps_s.append(0.0 if last_s is None else (at_s - last_s) / tokens)
        if len(self._at_s) == MOST_MARKS:
            # The newest one goes too; the next comes where the one after it would have come.
            del self._at_s[1::2], self._tokens[1::2], self._gaps_s[1::2]
            self._stride *= 2

    def pace(self) -> Pace:
        """What there is so far: at most MOST_MARKS marks, the first step's among them."""
        return Pace(tuple(self._at_s), tuple(self._tokens), tuple(self._gaps_s))
