"""A process whose event loop stands still for ever ends with our code; one that is only slow does not."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 15.0

PROGRAM = """
import asyncio, ctypes, sys, threading, time
from service import loop_guard
from service.stopping import StopSignals
loop_guard._SHORTEST_STAND_S = 1.0
StopSignals().install()

async def main():
    watching = loop_guard.LoopGuard(asyncio.get_running_loop(), 0.0)
    print("armed", flush=True)
{body}

asyncio.run(main())
"""
DEADLOCK = """
    libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)
"""
# What a driver may keep the loop with; no handler of a signal runs in a deadlock of a library.
STANDS = {
    "sleeping": "    while True: time.sleep(1)",
    "busy": "    while True: sum(range(1000))",
    "waiting for a lock": "    lock = threading.Lock(); lock.acquire(); lock.acquire()",
    "deadlocked in a library": DEADLOCK,
}


def start(body: str) -> subprocess.Popen[bytes]:
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(body=body)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"armed\n"
    return child


@pytest.mark.parametrize("stand", list(STANDS))
@pytest.mark.parametrize("signals", [0, 1])
def test_a_loop_that_stands_still_ends_its_process_with_70(stand: str, signals: int) -> None:
    """Whatever it is stuck in, whether or not somebody asked it to stop."""
    child = start(STANDS[stand])
    try:
        for _ in range(signals):
            child.send_signal(signal.SIGTERM)
        assert child.wait(PATIENCE_S) == 70
    finally:
        child.kill()
        _, error = child.communicate()
    assert error.decode().startswith("dynamo-actor-worker: the event loop has stood still for 1 s")


@pytest.mark.parametrize(
    "body",
    [
        "    for _ in range(20): time.sleep(0.1); await asyncio.sleep(0)",
        "    watching.stop(); time.sleep(2)",
        "    pass",
    ],
    ids=["slow", "told that it may", "over"],
)
def test_a_loop_that_is_slow_or_over_is_left_alone(body: str) -> None:
    """Turns that take long, a stop that was announced, and the end of the loop."""
    child = start(body)
    assert child.communicate(timeout=PATIENCE_S) == (b"", b"")
    assert child.returncode == 0


def test_a_process_that_was_halted_is_left_alone() -> None:
    """A debugger, a suspended machine: looks are counted, not seconds."""
    child = start("    await asyncio.sleep(1.0)")
    child.send_signal(signal.SIGSTOP)
    time.sleep(2.0)
    child.send_signal(signal.SIGCONT)
    assert child.communicate(timeout=PATIENCE_S) == (b"", b"")
    assert child.returncode == 0
