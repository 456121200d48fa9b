"""Logs: one writer, one line a record, the framework's format."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from service.telemetry.early import level_of
from service.telemetry.logs import get_logger

if TYPE_CHECKING:
    from tests.service.telemetry.readings import Lines

_ROOT = Path(__file__).parents[3]

# Speaks before the framework has its log, as it starts, and after: then the early handler must be gone.
_LIFE = """
import os
from service.telemetry.logs import configure_logging, get_logger
configure_logging(os.environ)
configure_logging(os.environ)
log = get_logger("service.life")
log.info("early.event", ratio=0.5, text="two words")
from dynamo.runtime.logging import configure_dynamo_logging
configure_dynamo_logging()
log.info("late.event", ratio=0.5, text="two words")
log.debug("never.seen")
"""


def _live(**environ: str) -> list[str]:
    """What one life writes to stderr, without the framework's own lines."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("DYN_", "OTEL_"))}
    lived = subprocess.run(
        [sys.executable, "-c", _LIFE],
        env={**clean, **environ},
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert lived.stdout == ""
    return [line for line in lived.stderr.splitlines() if "event" in line or "never" in line]


def test_each_event_is_written_once_on_a_console():
    """Before and after the framework took over; the words are the same."""
    lines = _live()
    assert len(lines) == 2
    assert lines[0].endswith(" INFO service.life: early.event ratio=0.5 text='two words'")
    assert lines[1].endswith(" late.event ratio=0.5 text='two words'")
    assert "service.life" in lines[1]


def test_each_event_is_one_object_in_json():
    """The framework's keys, and ours: beside them in a line of ours, inside the message in one of its own."""
    early, late = map(json.loads, _live(DYN_LOGGING_JSONL="1"))
    assert early.pop("time").endswith("Z")
    assert early == {
        "level": "INFO",
        "target": "service.life",
        "message": "early.event",
        "ratio": 0.5,
        "text": "two words",
    }
    assert (late["level"], late["log.target"]) == ("INFO", "service.life")
    assert json.loads(late["message"]) == {"message": "late.event", "ratio": 0.5, "text": "two words"}


def test_levels_follow_the_frameworks_filter():
    """Nothing below what DYN_LOG asks for, early or late."""
    assert _live(DYN_LOG="warn") == []


@pytest.mark.parametrize(
    ("dyn_log", "level"),
    [
        ("info", logging.INFO),
        ("warn", logging.WARNING),
        ("error,service=debug", logging.DEBUG),
        ("trace", logging.DEBUG),
        ("off", logging.CRITICAL),
        ("nonsense", logging.INFO),
        ("", logging.INFO),
    ],
)
def test_the_lowest_level_of_any_directive_counts(dyn_log: str, level: int):
    """Which target gets it is the framework's to decide."""
    assert level_of(dyn_log) == level


def test_nothing_is_added_where_somebody_writes_already(lines: Lines):
    """A process that has set up its own log keeps it."""
    from service.telemetry.logs import configure_logging

    before = logging.getLogger().handlers[:]
    assert lines in before
    configure_logging({})
    assert logging.getLogger().handlers == before


@pytest.mark.parametrize("method", ["debug", "info", "warning", "error", "critical", "exception"])
def test_the_level_is_the_methods(lines: Lines, method: str):
    """Also for the one that means an error with its traceback."""
    getattr(get_logger("x"), method)("an.event")
    expected = "error" if method == "exception" else method
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


def test_what_json_does_not_know_becomes_text(lines: Lines, monkeypatch: pytest.MonkeyPatch):
    """A path or an exception in a field does not break the log."""
    monkeypatch.setenv("DYN_LOGGING_JSONL", "true")
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
