"""The last resort: a process that does not stop ends with our code, just before the framework ends it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 15.0

HANGING = """
import sys, time
from service.guard import ExitGuard
from service.stopping import StopSignals
signals = StopSignals()
signals.install()
ExitGuard(signals, {guard_at_s})
print("armed", flush=True)
{hang}
"""
# What a process may hang in: the interpreter's lock is let go sometimes, or the main thread holds stderr's.
HANGS = {
    "sleeping": "while True: time.sleep(1)",
    "busy": "while True: sum(range(1000))",
    "waiting for a lock": "import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()",
    "writing to a full pipe": "while True: sys.stderr.write('x' * 4096)",
    "with a stderr that is closed": "import os; os.close(2)\nwhile True: time.sleep(1)",
}
# Nobody can hear the last words of these.
MUTE = ("writing to a full pipe", "with a stderr that is closed")


def start(program: str) -> subprocess.Popen[bytes]:
    child = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"armed\n"
    return child


@pytest.mark.parametrize("hang", list(HANGS))
@pytest.mark.parametrize("signals", [1, 2])
def test_a_process_that_hangs_ends_with_70(hang: str, signals: int) -> None:
    """Whatever the main thread is stuck in, and however often it was asked."""
    child = start(HANGING.format(guard_at_s=0.3, hang=HANGS[hang]))
    try:
        for _ in range(signals):
            child.send_signal(signal.SIGTERM)
        assert child.wait(PATIENCE_S) == 70
    finally:
        child.kill()
        _, error = child.communicate()
    if hang not in MUTE:
        assert error.decode().startswith("dynamo-actor-worker: still not stopped 0.3 s after the signal")


def test_a_log_that_nobody_reads_any_more_does_not_keep_the_process() -> None:
    """The reader of stderr is gone: the last words break, the end does not."""
    child = start(HANGING.format(guard_at_s=0.3, hang=HANGS["sleeping"]))
    assert child.stderr is not None
    child.stderr.close()
    with child:
        child.send_signal(signal.SIGTERM)
        assert child.wait(PATIENCE_S) == 70


def test_without_a_signal_the_guard_does_nothing() -> None:
    """However long the worker serves."""
    child = start(HANGING.format(guard_at_s=0.0, hang="time.sleep(0.3)"))
    assert child.communicate(timeout=PATIENCE_S) == (b"", b"")
    assert child.returncode == 0


def test_a_process_that_ends_in_time_keeps_its_code() -> None:
    """The guard's thread does not hold an exit up."""
    child = start(
        HANGING.format(
            guard_at_s=3600, hang="signal = __import__('signal'); signal.raise_signal(15); sys.exit(5)"
        )
    )
    assert child.communicate(timeout=PATIENCE_S) == (b"", b"")
    assert child.returncode == 5
