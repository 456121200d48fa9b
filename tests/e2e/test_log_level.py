"""The level of a real worker's log, changed from a shell: what reaches its stderr, once."""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.e2e.stacks import PROGRAM, ROOT
from tests.e2e.waiting import wait_log, wait_until

if TYPE_CHECKING:
    from tests.e2e.conftest import StackFactory
    from tests.e2e.stacks import Worker

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

JSONL = {"DYN_LOGGING_JSONL": "1"}
PLAIN = {"DYN_SDK_DISABLE_ANSI_LOGGING": "1"}
# A line of ours for people, by its level and event.
LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z +(?P<level>[A-Z]+) [a-z_.]+: (?P<event>[a-z_.]+)")


def log_level(worker: Worker, *words: str) -> list[str]:
    """The sub-command in a process of its own; what it printed."""
    environ = {**os.environ, "DYN_SYSTEM_PORT": str(worker.port)}
    run = subprocess.run(
        [*PROGRAM, "log-level", *words], cwd=ROOT, env=environ, capture_output=True, text=True, check=True
    )
    return run.stdout.splitlines()


def said(worker: Worker, event: str) -> list[str]:
    """The levels at which the worker has written this event."""
    found = []
    for line in worker.log().splitlines():
        if line.startswith("{"):
            entry = json.loads(line)
            message = entry["message"]
            if (
                entry["target"] == "log"
                and str(message).startswith("{")
                and json.loads(message)["message"] == event
            ):
                found.append(entry["level"])
        elif (match := LINE.match(line)) and match["event"] == event:
            found.append(match["level"])
    return found


@pytest.mark.parametrize("shape", [JSONL, PLAIN], ids=["json", "text"])
def test_a_worker_becomes_talkative_and_quiet_again_without_a_restart(
    new_stack: StackFactory, shape: dict[str, str]
) -> None:
    """What its framework would drop is there, in one format with the others, once; then it is gone again."""
    worker = new_stack(environ=shape).workers[0]
    worker.status()
    assert said(worker, "control.called") == []
    assert log_level(worker)[0] == "actor: info"
    assert (
        log_level(worker, "debug", "--for", "600")[0]
        == "actor: debug (configured: info), taken back in 600 s"
    )
    worker.status()
    wait_until(lambda: said(worker, "control.called"), worker.log, 10)
    assert said(worker, "control.called") == ["DEBUG"]
    assert log_level(worker, "configured")[0] == "actor: info"
    worker.control("trace")
    assert worker.control("drain")["state"] == "drained"
    wait_until(lambda: said(worker, "drain.ended"), worker.log, 10)
    assert said(worker, "control.called") == ["DEBUG", "INFO"]
    assert said(worker, "log.level") == ["WARN", "WARN"]


def test_a_worker_is_silenced_for_a_while(new_stack: StackFactory) -> None:
    """Also of errors; it says so, and speaks again by itself."""
    worker = new_stack(environ=PLAIN).workers[0]
    log_level(worker, "off", "--for", "1")
    assert worker.control("drain")["state"] == "drained"
    wait_log(worker, "lowest=configured", 10)
    assert worker.control("resume")["state"] == "serving"
    wait_until(lambda: said(worker, "control.called"), worker.log, 10)
    assert said(worker, "drain.ended") == []
    assert said(worker, "control.called") == ["INFO"]


def test_what_dyn_log_silences_can_be_heard(new_stack: StackFactory) -> None:
    """A worker that was started with errors only is asked what it does."""
    worker = new_stack(environ={**PLAIN, "DYN_LOG": "error"}).workers[0]
    assert log_level(worker, "info", "--target", "service")[2] == "service: info (configured: error)"
    worker.control("drain")
    wait_until(lambda: said(worker, "control.called"), worker.log, 10)
    assert said(worker, "worker.configured") == said(worker, "drain.ended") == []
