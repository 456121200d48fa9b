"""Levels that are changed while the worker runs: what is written then, by whom, and that it is once."""

from __future__ import annotations

import itertools
import logging
import os
import subprocess
import sys
import threading
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from service.telemetry.levels import Levels
from service.telemetry.logs import get_logger
from tests.service.telemetry.readings import all_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT = Path(__file__).parents[3]

# Changes of levels and back, while threads write.
_ROUNDS = 1000
# Under the framework's own log: each line by who wrote it is told apart by the file it went to.
_LIFE = """
import logging, os, sys
from service.telemetry.logs import configure_logging, get_logger
from service.telemetry.levels import LEVELS, Levels
from dynamo.runtime.logging import configure_dynamo_logging

configure_logging(os.environ)
configure_dynamo_logging()
levels = Levels(os.environ)
logs = {name: get_logger(name) for name in ("service.kv", "actor.request")}
library = logging.getLogger("somebody.elses")

def speak(when):
    for name, log in logs.items():
        log.debug("said", line=f"{when} {name} debug")
        log.info("said", line=f"{when} {name} info")
        log.error("said", line=f"{when} {name} error")
    library.debug("line='%s library debug'", when)

for step in sys.argv[1:]:
    target, word = step.split("=")
    levels.restore(target) if word == "configured" else levels.change(target, LEVELS[word])
    speak(step)
"""


# Says the worst news of a driver, and its smallest.
_OF_ENGINES = """
import logging, os
import actors.engines.trtllm.engine as engine, actors.engines.trtllm.processors.spool as spool
from service.telemetry.logs import configure_logging
from dynamo.runtime.logging import configure_dynamo_logging

configure_logging(os.environ)
configure_dynamo_logging()

def died():
    engine._log.error("it is dead")
    spool._log.info("it is swept")

died()
"""


def _stderr_of(code: str, *arguments: str, **environ: str) -> list[str]:
    """What such a process writes to stderr, line by line."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("DYN_", "OTEL_"))}
    lived = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**clean, "DYN_SDK_DISABLE_ANSI_LOGGING": "1", **environ},
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return lived.stderr.splitlines()


def _lines(*steps: str, **environ: str) -> list[str]:
    """What is written after each change ("service=debug"), in order."""
    lines = _stderr_of(_LIFE, *steps, **environ)
    return [line.partition("line='")[2].rstrip("'") for line in lines if "line='" in line]


def test_a_lower_level_than_the_frameworks_is_written_each_line_once() -> None:
    """Its filter drops them whatever Python says; nobody else becomes louder, and it is taken back whole."""
    assert _lines("service=debug", "service=configured") == [
        "service=debug service.kv debug",
        "service=debug service.kv info",
        "service=debug service.kv error",
        "service=debug actor.request info",
        "service=debug actor.request error",
        "service=configured service.kv info",
        "service=configured service.kv error",
        "service=configured actor.request info",
        "service=configured actor.request error",
    ]


def test_a_higher_level_silences_also_errors_when_it_is_off() -> None:
    """A target below has the level of its own."""
    assert _lines("actor=off", "actor.request=info", "actor=configured") == [
        "actor=off service.kv info",
        "actor=off service.kv error",
        "actor.request=info service.kv info",
        "actor.request=info service.kv error",
        "actor.request=info actor.request info",
        "actor.request=info actor.request error",
        "actor=configured service.kv info",
        "actor=configured service.kv error",
        "actor=configured actor.request info",
        "actor=configured actor.request error",
    ]


@pytest.mark.parametrize(
    ("dyn_log", "written"),
    [
        ("off,actor=info,actors=info,service=info", 2),
        ("off,actors=warn", 1),
        ("off,actors.engines.trtllm.processors.spool=info", 1),
        ("info,actors=off", 0),
    ],
)
def test_lines_of_drivers_are_filtered_by_their_room(dyn_log: str, written: int) -> None:
    """By the standard library's loggers: who shows only what is ours learns that an engine is dead."""
    said = [line for line in _stderr_of(_OF_ENGINES, DYN_LOG=dyn_log) if " it is " in line]
    assert len(said) == written
    assert all(" actors.engines.trtllm." in line for line in said)


@pytest.mark.parametrize("dyn_log", ["off", "warn,service=off", "warning"])
def test_what_the_framework_silences_can_be_woken(dyn_log: str) -> None:
    """Whatever its filter is."""
    assert _lines("service.kv=info", DYN_LOG=dyn_log)[:2] == [
        "service.kv=info service.kv info",
        "service.kv=info service.kv error",
    ]


def test_with_a_file_of_filters_each_line_is_written_once_too(tmp_path: Path) -> None:
    """Only the framework reads it: what was changed goes our way, the others its way."""
    file = tmp_path / "logging.toml"
    file.write_text('log_level = "error"\n[log_filters]\nservice = "debug"\n', encoding="utf-8")
    assert _lines("service=debug", "service=configured", DYN_LOGGING_CONFIG_PATH=str(file)) == [
        "service=debug service.kv debug",
        "service=debug service.kv info",
        "service=debug service.kv error",
        "service=debug actor.request error",
        "service=configured service.kv debug",
        "service=configured service.kv info",
        "service=configured service.kv error",
        "service=configured actor.request error",
    ]


@pytest.fixture
def _threads_take_turns_all_the_time() -> Iterator[None]:
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before_s)


@pytest.mark.usefixtures("_threads_take_turns_all_the_time")
def test_threads_that_write_while_levels_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every line is written once, by the framework or by us, and no exception reaches who wrote it."""
    ours = StringIO()
    monkeypatch.setattr("sys.stderr", ours)
    # With a file of filters a change turns lines of every level from the framework's way to ours.
    levels = Levels({"DYN_LOGGING_CONFIG_PATH": __file__})
    names = ["actor.request", "actors.a", "service.kv"]
    said: list[str] = []
    errors: list[Exception] = []
    is_over = threading.Event()

    def write(name: str) -> None:
        log = get_logger(name)
        try:
            for number in itertools.count():
                if is_over.is_set():
                    return
                said.append(line := f"{name}-{number}")
                log.error("said", line=line)
        except Exception as exc:
            errors.append(exc)

    with all_lines() as theirs:
        writers = [threading.Thread(target=write, args=(name,)) for name in names]
        for writer in writers:
            writer.start()
        rounds = 0
        while not errors and (rounds < _ROUNDS or not theirs.records or not ours.tell()):
            rounds += 1
            for name in names:
                levels.change(name, logging.DEBUG)
            for name in names:
                levels.restore(name)
        is_over.set()
        for writer in writers:
            writer.join()
    by_framework = [line["line"] for line in theirs.named("said")]
    by_us = [line.rpartition("line=")[2] for line in ours.getvalue().splitlines()]
    assert errors == []
    assert sorted(by_framework + by_us) == sorted(said)
