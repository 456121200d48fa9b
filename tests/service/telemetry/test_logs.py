"""Logs: one writer, one line a record, the framework's format."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from service.telemetry import line_format
from service.telemetry.dyn_log import DynLog
from service.telemetry.line_format import is_json
from service.telemetry.logs import configure_logging, get_logger

if TYPE_CHECKING:
    from tests.service.telemetry.readings import Lines

_ROOT = Path(__file__).parents[3]

# Says the same before the framework has its log and after: by then the early handler must be gone.
_LIFE = """
import logging, os
from service.telemetry.logs import configure_logging, get_logger
from dynamo.runtime.logging import configure_dynamo_logging

log, foreign = get_logger("service.life"), logging.getLogger("foreign.library")

def speak():
    log.debug("a.detail")
    log.info("an.event", ratio=0.5, text="two words")
    log.warning("an.event", where="C:\\new")
    log.critical("an.event")
    foreign.info("has said %s", "this")
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("an.event")
        foreign.exception("has failed")

configure_logging(os.environ)
configure_logging(os.environ)
speak()
logging.getLogger().handlers[0].stream.write("-- the framework takes over\\n")
configure_dynamo_logging()
speak()
"""
# Says one line of each level to the framework's logger itself, which is asked for all of them.
_FILTER = """
from dynamo._core import log_message
from dynamo.runtime.logging import configure_dynamo_logging

configure_dynamo_logging()
for target in {targets}:
    for level in ("debug", "info", "warning", "error"):
        log_message(level, f"said {{target}} {{level}}", target, "", 0)
"""
_TARGETS = ("service.kv", "actor.request", "other")
_TIMES = {
    "": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z",
    "1": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+05:45",
}


def _stderr_of(code: str, **environ: str) -> list[str]:
    """What such a process writes to stderr, line by line."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("DYN_", "OTEL_"))}
    lived = subprocess.run(
        [sys.executable, "-c", code],
        env={**clean, **environ},
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert lived.stdout == ""
    return lived.stderr.splitlines()


def _live(**environ: str) -> tuple[list[str], list[str]]:
    """What was said early, and late; without what the framework says of itself."""
    lines = [line for line in _stderr_of(_LIFE, **environ) if "dynamo_runtime::logging" not in line]
    middle = lines.index("-- the framework takes over")
    return lines[:middle], lines[middle + 1 :]


@pytest.mark.parametrize("has_no_colours", ["", "1"])
@pytest.mark.parametrize("is_json", ["", "1"])
@pytest.mark.parametrize("is_local", ["", "1"])
def test_early_and_late_lines_are_one_format(is_json: str, is_local: str, has_no_colours: str):
    """Byte by byte but for the digits of the time: ours and a library's, each level, with a traceback."""
    early, late = _live(
        DYN_LOGGING_JSONL=is_json,
        DYN_LOG_USE_LOCAL_TZ=is_local,
        DYN_SDK_DISABLE_ANSI_LOGGING=has_no_colours,
        DYN_LOG="debug",
        TZ="Asia/Kathmandu",
    )
    time = re.compile(_TIMES[is_local])
    assert [time.sub("TIME", line) for line in early] == [time.sub("TIME", line) for line in late]
    assert len([line for line in early if time.search(line)]) == 7


def test_an_event_on_a_console_is_one_line_of_words():
    """Its target, its name, its fields."""
    early, _ = _live(DYN_SDK_DISABLE_ANSI_LOGGING="1")
    assert early[0].endswith("Z  INFO service.life: an.event ratio=0.5 text='two words'")


def test_an_event_in_json_is_an_object_within_the_frameworks():
    """It takes text only; so one query reads the lines of both: decode, take the message, decode."""
    early, _ = _live(DYN_LOGGING_JSONL="1")
    line = json.loads(early[0])
    assert (line["level"], line["target"], line["log.target"]) == ("INFO", "log", "service.life")
    assert json.loads(line["message"]) == {"message": "an.event", "ratio": 0.5, "text": "two words"}


@pytest.mark.parametrize(
    ("version", "name", "switch", "expected"),
    [
        ("1.4.2", "jsonl", "", False),
        ("1.4.2", "readable", "1", True),
        ("1.5.0", "jsonl", "", True),
        ("1.6.1", " JSONL ", "", True),
        ("1.6.1", "readable", "1", False),
        ("1.6.1", "  ", "1", True),
        ("1.6.1", "nonsense", "1", False),
        ("1.6.1", "", "on", True),
    ],
)
def test_the_format_is_what_the_installed_framework_writes(
    version: str, name: str, switch: str, expected: bool, monkeypatch: pytest.MonkeyPatch
):
    """Its newer variable counts from the version on that reads it (measured on 1.4.2 and 1.6.1)."""
    monkeypatch.setattr("service.telemetry.line_format.metadata.version", lambda _: version)
    line_format._framework_names_format.cache_clear()
    assert is_json({"DYN_LOGGING_CONSOLE_FORMAT": name, "DYN_LOGGING_JSONL": switch}) is expected
    monkeypatch.undo()
    line_format._framework_names_format.cache_clear()


@pytest.mark.parametrize(
    "dyn_log",
    [
        "",
        "warn",
        "off",
        "warning",
        "foreign=debug",
        "error,serv=DEBUG,,nonsense=bad",
        "info,service=error,service.kv=2,actor=",
        "service,debug,warn",
        "[span]=debug",
        " warn , service=debug ",
    ],
)
def test_the_frameworks_filter_is_read_as_the_framework_reads_it(dyn_log: str):
    """For every target and level: what its own logger writes is what we say that it writes."""
    written = {
        line.partition("said ")[2] for line in _stderr_of(_FILTER.format(targets=_TARGETS), DYN_LOG=dyn_log)
    }
    expected = {
        f"{target} {level}"
        for target in _TARGETS
        for level in ("debug", "info", "warning", "error")
        if logging.getLevelNamesMapping()[level.upper()] >= DynLog(dyn_log).lowest(target)
    }
    assert written - {""} == expected


def test_levels_follow_the_frameworks_filter():
    """Nothing below what DYN_LOG asks for of this target, early or late."""
    assert _live(DYN_LOG="debug,service=off,foreign=off,-c=off,__main__=off,<string>=off") == ([], [])


def test_a_filter_that_silences_the_worker_is_named():
    """A word that is no level is a target for the framework: all lines would be gone without a word."""
    lines = _stderr_of(_LIFE, DYN_LOG="warning")
    assert lines[0].startswith("dynamo-actor-worker: DYN_LOG='warning' lets no line of this worker through")


def test_nothing_is_added_where_somebody_writes_already(lines: Lines):
    """A process that has set up its own log keeps it."""
    before = logging.getLogger().handlers[:]
    assert lines in before
    configure_logging({})
    assert logging.getLogger().handlers == before


@pytest.mark.parametrize("method", ["debug", "info", "warning", "error", "critical", "exception"])
def test_the_level_is_the_methods(lines: Lines, method: str):
    """But for an error with its traceback, and for what the framework would show as INFO."""
    getattr(get_logger("x"), method)("an.event")
    expected = "error" if method in ("exception", "critical") else method
    assert [record.levelname for record in lines.records] == [expected.upper()]


def test_a_record_looks_like_the_standard_librarys(lines: Lines):
    """Name and message for every handler; the target for the framework's."""
    get_logger("service.x").info("an.event", count=3, nothing=None)
    (record,) = lines.records
    assert (record.name, record.module, record.funcName) == ("service.x", "service.x", "<module>")
    assert record.getMessage() == "an.event count=3"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1.25, "1.25"),
        (0.0, "0.0"),
        (12345.678901, "12345.678901"),
        ("", "''"),
        ("a=b", "'a=b'"),
        ("two\nlines", r"'two\nlines'"),
        ("\x1b[31mred", r"'\x1b[31mred'"),
        (["a"], "['a']"),
        (True, "True"),
    ],
)
def test_a_value_cannot_forge_a_line(lines: Lines, value: Any, shown: str):
    """What is not one plain word stands in quotes, with escapes."""
    get_logger("x").info("an.event", value=value)
    assert lines.records[0].getMessage() == f"an.event value={shown}"


def test_a_percent_sign_is_a_percent_sign(lines: Lines):
    """Texts are never formats."""
    get_logger("x").info("100%s", rate="5%d")
    assert lines.records[0].getMessage() == "100%s rate=5%d"


def test_a_traceback_stays_readable(lines: Lines):
    """On a console on lines of its own, in JSON a field."""
    try:
        raise ValueError("broken")
    except ValueError:
        get_logger("x").exception("an.event")
    (record,) = lines.records
    assert record.getMessage().startswith("an.event\nTraceback (most recent call last):\n")
    assert lines.named("an.event")[0]["exception"].endswith("ValueError: broken")


def test_the_format_is_decided_once(lines: Lines, monkeypatch: pytest.MonkeyPatch):
    """When the log is configured, as the framework does: its variable is not read for every line."""
    configure_logging({"DYN_LOGGING_JSONL": "1"})
    monkeypatch.setenv("DYN_LOGGING_CONSOLE_FORMAT", "readable")
    get_logger("x").info("an.event")
    configure_logging({})
    monkeypatch.setenv("DYN_LOGGING_JSONL", "1")
    get_logger("x").info("an.event")
    assert [record.getMessage() for record in lines.records] == ['{"message":"an.event"}', "an.event"]


def test_what_json_does_not_know_becomes_text(lines: Lines):
    """A path or an exception in a field does not break the log."""
    configure_logging({"DYN_LOGGING_JSONL": "true"})
    get_logger("x").info("an.event", where=Path("/tmp"), why=ValueError("broken"))
    assert json.loads(lines.records[0].getMessage()) == {
        "message": "an.event",
        "where": "/tmp",
        "why": "broken",
    }


def test_repeats_are_counted_and_not_said(lines: Lines):
    """Same event, same key, same minute: once."""
    for number in range(5):
        get_logger("x").warning("an.event", number=number, once_per="key")
    assert lines.named("an.event") == [{"level": "WARNING", "number": 0}]
