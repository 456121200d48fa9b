"""A progress display that remembers, for tests."""

from collections.abc import Generator
from contextlib import contextmanager

from service.models.progress import Advance


class Remembered:
    """Keeps the lines, the stages and the last part of each."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.parts: dict[str, float] = {}

    def say(self, line: str) -> None:
        """Keep the line."""
        self.lines.append(line)

    @contextmanager
    def stage(self, title: str) -> Generator[Advance]:
        """Keep how far the stage came."""
        self.parts[title] = 0.0

        def advance(part: float) -> None:
            self.parts[title] = part

        yield advance
