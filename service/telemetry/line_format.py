"""Lines as the framework writes them, for those that it does not: early ones, and ones below its filter.

Measured on ai-dynamo 1.4.2 and 1.6.1; a test holds both against each other, byte by byte but for the time.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

_TRUTHY = frozenset({"1", "true", "on", "yes"})
# From here on the framework has a variable that says the format by name, and wins where it is not blank.
_NAMES_FORMAT = (1, 5)
_WORDS = {logging.DEBUG: "DEBUG", logging.INFO: "INFO", logging.WARNING: "WARN"}
_DIM = 2
_COLOURS = {"DEBUG": 34, "INFO": 32, "WARN": 33, "ERROR": 31}
_JSON = msgspec.json.Encoder()


def is_truthy(text: str | None) -> bool:
    """How the framework reads its switches."""
    return text is not None and text.strip().lower() in _TRUTHY


def is_json(environ: Mapping[str, str]) -> bool:
    """Whether the framework that is installed writes one JSON object a line."""
    name = environ.get("DYN_LOGGING_CONSOLE_FORMAT", "").strip().lower()
    if name and _framework_names_format():
        return name == "jsonl"
    return is_truthy(environ.get("DYN_LOGGING_JSONL"))


def target_of(record: logging.LogRecord) -> str:
    """What the framework's handler gives its logger as the target."""
    return record.module if record.funcName == "<module>" else f"{record.module}.{record.funcName}"


class LineFormatter(logging.Formatter):
    """One record as one line of the framework's; below it the traceback, where lines are for people."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__("%(message)s")
        self._is_local = is_truthy(environ.get("DYN_LOG_USE_LOCAL_TZ"))
        self._has_colours = not is_truthy(environ.get("DYN_SDK_DISABLE_ANSI_LOGGING"))
        self._shape = self._as_json if is_json(environ) else self._as_text

    def format(self, record: logging.LogRecord) -> str:
        """Any thread."""
        return self._shape(super().format(record), record, _WORDS.get(record.levelno, "ERROR"))

    def _as_json(self, text: str, record: logging.LogRecord, level: str) -> str:
        entry: dict[str, Any] = {
            "time": self._time_of(record),
            "level": level,
            "target": "log",
            "message": text,
            "log.file": record.pathname,
            "log.line": record.lineno,
            "log.target": target_of(record),
        }
        return _JSON.encode(entry).decode()

    def _as_text(self, text: str, record: logging.LogRecord, level: str) -> str:
        time, target = self._time_of(record), target_of(record)
        if not self._has_colours:
            return f"{time} {level:>5} {target}: {text}"
        word = _painted(_COLOURS[level], f"{level:>5}")
        return f"{_painted(_DIM, time)} {word} {_painted(_DIM, target)}{_painted(_DIM, ':')} {text}"

    def _time_of(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        if self._is_local:
            return at.astimezone().isoformat(timespec="microseconds")
        return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _painted(code: int, text: str) -> str:
    """For a terminal."""
    return f"\x1b[{code}m{text}\x1b[0m"


@cache
def _framework_names_format() -> bool:
    major, minor = metadata.version("ai-dynamo").split(".")[:2]
    return (int(major), int(minor)) >= _NAMES_FORMAT
