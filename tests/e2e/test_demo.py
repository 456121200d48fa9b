"""The demo and ``make serve``, as a newcomer runs them, on an engine that needs no weights."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from service.demo.client import Client
from tests.e2e.stacks import Reader

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


class Demo:
    """One run of the sub-command; its output is read as it comes."""

    def __init__(self, words: Sequence[str]) -> None:
        argv = [sys.executable, "-m", "service", "demo", *words]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines: list[str] = []
        self._came = threading.Condition()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def output(self) -> str:
        """Everything printed so far."""
        return "".join(self.lines)

    def wait_for(self, pattern: str, timeout_s: float = 90.0) -> re.Match[str]:
        """Until the output matches."""
        with self._came:
            assert self._came.wait_for(lambda: re.search(pattern, self.output), timeout_s), self.output
        found = re.search(pattern, self.output)
        assert found is not None
        return found

    def children(self) -> list[psutil.Process]:
        """The frontend and the worker."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def wait(self) -> int:
        """Its exit code, with all of its output read."""
        code = self.process.wait(180)
        self._thread.join(10)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._came:
                self.lines.append(line)
                self._came.notify_all()


@pytest.fixture
def options(word_model: Path) -> list[str]:
    """Worker options of a model that answers with made-up words."""
    return ["--engine", "synthetic", "--model", str(word_model), "--synthetic-step-ms", "20"]


def test_the_demo_shows_its_five_things_and_leaves_nothing_running(options: list[str]) -> None:
    """Answer, way, cancel, figures, drain; exit 0; both processes gone."""
    demo = Demo(options)
    demo.wait_for("is served at")
    children = demo.children()
    assert demo.wait() == 0, demo.output
    for shown in ("w1000 w1001", "stream", "its slot in the engine was free", 'outcome="completed"'):
        assert shown in demo.output
    assert "96 tokens, reason 'length'" in demo.output
    assert "ended with code 0" in demo.output
    assert children
    assert not any(child.is_running() for child in children)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_a_demo_that_stays_loses_no_answer(options: list[str], number: signal.Signals) -> None:
    """Ctrl-C in mid-answer: the answer arrives whole, then the worker goes, then the frontend."""
    demo = Demo(["--stay", *options])
    port = int(demo.wait_for(r"curl -N http://127\.0\.0\.1:(\d+)/")[1])
    demo.wait_for("Ctrl-C stops it")
    children = demo.children()
    client = Client(port)
    reader = Reader(client, client.models()[0], "w5", {"max_tokens": 150}).start()
    reader.wait_text(5)
    demo.process.send_signal(number)
    reader.finish()
    assert reader.error is None
    assert len(reader.text.split()) == 150
    assert demo.wait() == 0, demo.output
    assert not any(child.is_running() for child in children)


def test_a_wrong_worker_option_is_shown_with_the_workers_own_words(options: list[str]) -> None:
    """The worker refuses; the demo ends with its last lines instead of waiting."""
    demo = Demo([*options, "--max-lve", "3"])
    assert demo.wait() == 1
    assert "--max-lve: unknown flag; the nearest is --max-live" in demo.output


def test_a_signal_while_the_demo_starts_ends_it_and_its_children(options: list[str]) -> None:
    """Impatient operators leave nothing behind."""
    demo = Demo(options)
    while len(demo.children()) < 2:
        assert demo.process.poll() is None
    children = demo.children()
    demo.process.send_signal(signal.SIGINT)
    assert demo.wait() == 0
    assert not any(child.is_running() for child in children)
