"""The log before the framework's: from the first line of ours until ``Worker.run()`` begins.

Then the framework removes every handler of the root logger, this one included, and puts its own there:
at any time there is one writer.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

# The framework's words for levels, and what Python has for them.
_LEVELS = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "off": logging.CRITICAL,
}
_TRUTHY = frozenset({"1", "true", "on", "yes"})


def is_truthy(text: str | None) -> bool:
    """How the framework reads its switches."""
    return text is not None and text.strip().lower() in _TRUTHY


def level_of(dyn_log: str) -> int:
    """The lowest level that any directive of ``DYN_LOG`` ("info,some.target=debug") lets through."""
    words = (directive.rpartition("=")[2].strip().lower() for directive in dyn_log.split(","))
    return min(_LEVELS.get(word, logging.INFO) for word in words)


def install_early_handler(environ: Mapping[str, str]) -> None:
    """Write to stderr until the framework takes over. Where somebody writes already, do nothing."""
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if is_truthy(environ.get("DYN_LOGGING_JSONL")) else _Console())
    root.addHandler(handler)
    root.setLevel(level_of(environ.get("DYN_LOG", "info")))


def _time_of(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _level(record: logging.LogRecord) -> str:
    return "WARN" if record.levelno == logging.WARNING else record.levelname


class _Console(logging.Formatter):
    """As the framework writes to a terminal, without the colours."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return f"{_time_of(record)} {_level(record):>5} {record.name}: {record.message}"


class _Json(logging.Formatter):
    """One object a line with the framework's keys; the fields of our own events beside them."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": _time_of(record),
            "level": _level(record),
            "target": record.name,
            "message": getattr(record, "event", None) or record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and "exception" not in entry:
            entry["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(entry, enc_hook=str).decode()
