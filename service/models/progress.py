"""How far a preparation is, on standard error: a moving bar on a terminal, one line a stage elsewhere."""

import sys
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

Advance = Callable[[float], None]
"""Takes the part of the stage that is done, 0.0 to 1.0."""


class ProgressDisplay(Protocol):
    """What the preparation tells its reader."""

    def say(self, line: str) -> None:
        """Show one line."""
        ...

    def stage(self, title: str) -> AbstractContextManager[Advance]:
        """Show a stage of the work from here to the end of the block."""
        ...


class Lines:
    """One line when a stage begins and one when it is done: for logs and pipes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def say(self, line: str) -> None:
        """Write the line at once."""
        print(line, file=self._stream, flush=True)

    @contextmanager
    def stage(self, title: str) -> Generator[Advance]:
        """Write the title now and the seconds it took at the end; parts are not shown."""
        started_s = time.monotonic()
        self.say(f"{title} ...")
        yield lambda part: None
        self.say(f"{title}: done in {time.monotonic() - started_s:.1f} s")


class Bar:
    """A bar that moves, for people."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def say(self, line: str) -> None:
        """Print the line above whatever moves."""
        self._console.print(line, markup=False, highlight=False)

    @contextmanager
    def stage(self, title: str) -> Generator[Advance]:
        """Draw a bar for the block; it stays, full, when the block ends well."""
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self._console) as bars:
            bar = bars.add_task(title, total=1.0)
            yield lambda part: bars.update(bar, completed=part)
            bars.update(bar, completed=1.0)


def progress_on_stderr() -> ProgressDisplay:
    """Choose by what standard error is."""
    return Bar(Console(stderr=True)) if sys.stderr.isatty() else Lines(sys.stderr)
