"""How much of this worker is written, changed while it runs.

The framework reads ``DYN_LOG`` once, and what its filter drops it drops for ever (measured: a Python logger
at DEBUG changes nothing). So while a level is changed, lines that the filter would drop are written to stderr
by a handler of ours, in the framework's format; all others go the framework's way as ever. Each is written
once.

With a file of filters (``DYN_LOGGING_CONFIG_PATH``), which only the framework reads, nobody here knows what
it drops: then all lines of a target that was changed are written by us.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

from service.telemetry import dyn_log
from service.telemetry.dyn_log import DynLog
from service.telemetry.filter_file import has_filter_file
from service.telemetry.line_format import LineFormatter, target_of

if TYPE_CHECKING:
    from collections.abc import Mapping

# Our loggers and all below them. Libraries are left out: what they say at DEBUG may be content.
TARGETS = ("actor", "actors", "service")
# The framework's words; Python has nothing below DEBUG.
LEVELS = {word: level for word, level in dyn_log.LEVELS.items() if word != "trace"}
_WORDS = {level: word for word, level in LEVELS.items()}


class Levels:
    """The levels that were changed. Process-wide, as logging is. Any thread, one at a time."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._filters = None if has_filter_file(environ) else DynLog(environ.get("DYN_LOG"))
        self._router = _Router(self, environ)
        self._changed: dict[str, int] = {}

    @property
    def changed(self) -> frozenset[str]:
        """Targets whose level is not the configured one."""
        return frozenset(self._changed)

    def change(self, target: str, level: int) -> None:
        """From now on, until `restore`. target: one of `known_targets`."""
        self._changed[target] = level
        logging.getLogger(target).setLevel(level)
        for name in TARGETS:
            logger = logging.getLogger(name)
            logger.propagate = False
            if self._router not in logger.handlers:
                logger.addHandler(self._router)

    def restore(self, target: str) -> None:
        """As configured. One that was not changed stays as it is."""
        if self._changed.pop(target, None) is None:
            return
        logging.getLogger(target).setLevel(logging.NOTSET)
        if self._changed:
            return
        for name in TARGETS:
            logger = logging.getLogger(name)
            logger.propagate = True
            logger.removeHandler(self._router)

    def lowest(self, target: str) -> int | None:
        """The lowest level that is written now; None where the framework's file says it."""
        above = [changed for changed in self._changed if is_below(target, changed)]
        return self._changed[max(above, key=len)] if above else self.configured(target)

    def configured(self, target: str) -> int | None:
        """The same, had nobody changed anything."""
        if self._filters is None:
            return None
        return max(self._filters.lowest(target), logging.getLogger().level)

    def is_passed_on(self, record: logging.LogRecord) -> bool:
        """Whether the framework gets this line: it would write it, or we have nothing to do with it."""
        if not any(is_below(record.name, changed) for changed in self._changed):
            return True
        configured = self.configured(target_of(record))
        return configured is not None and record.levelno >= configured


def known_targets() -> list[str]:
    """Ours that somebody logs to, by name; `TARGETS` first."""
    made = logging.getLogger().manager.loggerDict
    below = (name for name, logger in made.items() if isinstance(logger, logging.Logger))
    return [*TARGETS, *sorted(name for name in below if "." in name and name.split(".")[0] in TARGETS)]


def word_of(level: int | None) -> str | None:
    """The framework's word for it; numbers in between have none."""
    return None if level is None else _WORDS.get(level, str(level))


def is_below(name: str, target: str) -> bool:
    """Whether it is that target or one of those below it."""
    return name == target or name.startswith(f"{target}.")


class _Router(logging.Handler):
    """Each line of ours to the root logger's handlers, whoever they are, or to stderr."""

    def __init__(self, levels: Levels, environ: Mapping[str, str]) -> None:
        super().__init__()
        self._levels = levels
        self._below = logging.StreamHandler(sys.stderr)
        self._below.setFormatter(LineFormatter(environ))

    def emit(self, record: logging.LogRecord) -> None:
        """Any thread."""
        way = logging.getLogger() if self._levels.is_passed_on(record) else self._below
        way.handle(record)
