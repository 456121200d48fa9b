"""How much of this worker is written, changed while it runs.

The framework reads ``DYN_LOG`` once, and what its filter drops it drops for ever (measured: a Python logger
at DEBUG changes nothing). So while a level is changed, lines that the filter would drop are written to stderr
by a handler of ours, in the framework's format; all others go the framework's way as ever. Each is written
once, also by threads that write while a level changes: no handler comes or goes then, and one state, which is
replaced and never altered, decides about each line.

With a file of filters (``DYN_LOGGING_CONFIG_PATH``), which only the framework reads, nobody here knows what
it drops: then all lines of a target that was changed are written by us.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass, field
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


def install_router() -> None:
    """Before other threads write: all lines of ours go through it from now on. Idempotent."""
    for name in TARGETS:
        logger = logging.getLogger(name)
        if _ROUTER not in logger.handlers:
            logger.addHandler(_ROUTER)
            logger.propagate = False


class Levels:
    """The levels that were changed. Process-wide, as logging is: two of these see and change the same.

    `change` and `restore`: one thread at a time.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._filters = None if has_filter_file(environ) else DynLog(environ.get("DYN_LOG"))
        self._below = logging.StreamHandler(sys.stderr)
        self._below.setFormatter(LineFormatter(environ))

    @property
    def changed(self) -> frozenset[str]:
        """Targets whose level is not the configured one."""
        return frozenset(_ROUTER.state.changed)

    def change(self, target: str, level: int) -> None:
        """From now on, until `restore`. target: one of `known_targets`."""
        install_router()
        self._set({**_ROUTER.state.changed, target: level})
        logging.getLogger(target).setLevel(level)

    def restore(self, target: str) -> None:
        """As configured. One that was not changed stays as it is."""
        changed = dict(_ROUTER.state.changed)
        if changed.pop(target, None) is None:
            return
        logging.getLogger(target).setLevel(logging.NOTSET)
        self._set(changed)

    def lowest(self, target: str) -> int | None:
        """The lowest level that is written now; None where the framework's file says it."""
        changed = _ROUTER.state.changed
        above = [name for name in changed if is_below(target, name)]
        return changed[max(above, key=len)] if above else self.configured(target)

    def configured(self, target: str) -> int | None:
        """The same, had nobody changed anything."""
        return _configured(self._filters, target)

    def _set(self, changed: Mapping[str, int]) -> None:
        _ROUTER.state = _State(changed, self._filters, self._below)


def known_targets() -> list[str]:
    """Ours that somebody logs to, by name; `TARGETS` first."""
    # A copy: other threads make loggers.
    made = logging.getLogger().manager.loggerDict.copy()
    below = (name for name, logger in made.items() if isinstance(logger, logging.Logger))
    return [*TARGETS, *sorted(name for name in below if "." in name and name.split(".")[0] in TARGETS)]


def word_of(level: int | None) -> str | None:
    """The framework's word for it; numbers in between have none."""
    return None if level is None else _WORDS.get(level, str(level))


def is_below(name: str, target: str) -> bool:
    """Whether it is that target or one of those below it."""
    return name == target or name.startswith(f"{target}.")


def _configured(filters: DynLog | None, target: str) -> int | None:
    return None if filters is None else max(filters.lowest(target), logging.getLogger().level)


@dataclass(frozen=True, slots=True)
class _State:
    """What decides about lines. filters: None where only the framework has read them. below: to stderr."""

    changed: Mapping[str, int] = field(default_factory=dict[str, int])
    filters: DynLog | None = None
    below: logging.Handler = field(default_factory=logging.NullHandler)

    def is_passed_on(self, record: logging.LogRecord) -> bool:
        """Whether the framework gets this line: it would write it, or we have nothing to do with it."""
        if not any(is_below(record.name, changed) for changed in self.changed):
            return True
        configured = _configured(self.filters, target_of(record))
        return configured is not None and record.levelno >= configured


class _Router(logging.Handler):
    """Each line of ours to the root logger's handlers, whoever they are, or to stderr. One in a process."""

    def __init__(self) -> None:
        super().__init__()
        self.state = _State()

    def handle(self, record: logging.LogRecord) -> bool:
        """Any thread, without a lock: where it goes has its own."""
        # The framework makes a target of file and function, which nobody could filter by room.
        record.module, record.funcName = record.name, "<module>"
        state = self.state
        way = logging.getLogger() if state.is_passed_on(record) else state.below
        way.handle(record)
        return True


_ROUTER = _Router()
