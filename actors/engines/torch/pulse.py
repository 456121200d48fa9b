"""The sign of life of the engine's thread: a number that changes while it computes."""

from __future__ import annotations


class Pulse:
    """Counted up by the engine's thread, several times a layer; read by the event loop.

    No lock: there is one writer, storing an int is one action of the interpreter, and the reader only
    asks whether the number is another one than before. A stale value is right at its next look.
    """

    __slots__ = ("beats",)

    def __init__(self) -> None:
        self.beats = 0

    def beat(self) -> None:
        """Engine thread: something was computed."""
        self.beats += 1
