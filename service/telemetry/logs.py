"""Structured logs through one writer.

structlog turns an event and its fields into a dictionary; it becomes one record of the standard library, and
whoever owns the root logger writes it: our early handler at first, then the framework's. As the framework's
handler takes text only, the text is the event with its fields, as JSON where its own lines are JSON
(``DYN_LOGGING_JSONL``, later ``DYN_LOGGING_CONSOLE_FORMAT``), else as ``event key=value``.

Keyword ``once_per``: of all events with the same value one a minute is let through, and 16 with different
ones. It is not written.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any, cast

import msgspec
import structlog

from service.telemetry.early import install_early_handler
from service.telemetry.levels import install_router
from service.telemetry.line_format import is_json
from service.telemetry.repeats import RepeatLimiter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

    from protocols.bounds import OnBound

_JSON = msgspec.json.Encoder(enc_hook=str)
# Printable ASCII without space, quotation mark and equals sign.
_PLAIN = re.compile(r"[!#-<>-~]+")
_LIMITER = RepeatLimiter()
# structlog's names of methods; "exception" reaches us as "error". The framework shows CRITICAL as INFO.
_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.ERROR,
}


class _Form:
    """What the text of a line is, decided once a process: words until `configure_logging` says otherwise."""

    is_json = False


_FORM = _Form()


def configure_logging(environ: Mapping[str, str]) -> None:
    """First thing in the process: lines before the framework has its own handler go to stderr.

    The format is that of the framework, which reads it once as well.
    """
    _FORM.is_json = is_json(environ)
    install_router()
    install_early_handler(environ)


def count_repeats(on_bound: OnBound) -> None:
    """Who is told of lines that are held back. Process-wide, as logging is: the last one."""
    _LIMITER.on_bound = on_bound


def get_logger(name: str) -> FilteringBoundLogger:
    """A logger whose lines carry ``name`` as their target, also for the filters of ``DYN_LOG``."""
    logger = structlog.wrap_logger(
        RecordWriter(name),
        processors=[_drop_unwanted, structlog.processors.format_exc_info, _as_record],
        wrapper_class=structlog.make_filtering_bound_logger(logging.NOTSET),
    )
    # Bound at once: the lazy proxy would bind anew for every line.
    return cast("FilteringBoundLogger", logger.bind())


class RecordWriter:
    """The end of the chain: makes the record and hands it to the standard library."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def is_enabled(self, level: int) -> bool:
        """Whether anybody would write it."""
        return self._logger.isEnabledFor(level)

    def write(self, level: int, text: str, event: str, fields: dict[str, Any]) -> None:
        """One record. The framework takes its target from ``module`` when there is no function."""
        name = self._logger.name
        record = logging.LogRecord(name, level, "", 0, text, None, None, func="<module>")
        record.module = name
        record.event = event
        record.fields = fields
        self._logger.handle(record)

    # structlog calls the method that is named like the event's level.
    debug = info = warning = error = critical = write


def _drop_unwanted(writer: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """What nobody would write, and what was said a moment ago."""
    if not writer.is_enabled(_LEVELS[method]):
        raise structlog.DropEvent
    key = event.pop("once_per", None)
    if key is not None:
        held = _LIMITER.admit(event["event"], key)
        if held is None:
            raise structlog.DropEvent
        if held:
            event["repeats"] = held
    return event


def _as_record(
    _writer: WrappedLogger, method: str, event: EventDict
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    message = str(event.pop("event"))
    fields = {name: value for name, value in event.items() if value is not None}
    text = _as_json(message, fields) if _FORM.is_json else _as_text(message, fields)
    return (_LEVELS[method], text, message, fields), {}


def _as_json(message: str, fields: Mapping[str, Any]) -> str:
    """One object, which the framework's line carries as its text."""
    return _JSON.encode({"message": message, **fields}).decode()


def _as_text(message: str, fields: Mapping[str, Any]) -> str:
    """One line of words, each field one of them; below it the traceback, if there is one."""
    words = [message]
    for name, value in fields.items():
        if isinstance(value, int | float):
            words.append(f"{name}={value}")
        elif name != "exception":
            text = str(value)
            # In quotes, with escapes, where it would not be one plain word.
            words.append(f"{name}={text}" if _PLAIN.fullmatch(text) else f"{name}={text!r}")
    traceback = f"\n{fields['exception']}" if "exception" in fields else ""
    return " ".join(words) + traceback
