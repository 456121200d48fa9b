"""Processes below this one are found and ended, whoever started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from actors.engines.trtllm.life.children import descendants, end_all

# Starts a child of its own, says both pids, and waits; with "deaf" both ignore a polite request.
_PARENT = """
import os, signal, subprocess, sys, time
deaf = sys.argv[1] == "deaf"
if deaf:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
wait = "import signal, time; " + ("signal.signal(signal.SIGTERM, signal.SIG_IGN); " if deaf else "")
wait += "print('ready', flush=True); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", wait], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(600)
"""


# Starts a child out of reach, says its pid, and tells of every signal how the child is.
_LEADER = """
import multiprocessing, signal, subprocess, sys, threading
from actors.engines.trtllm.life.children import out_of_reach

def start():
    global child
    with out_of_reach():
        multiprocessing.get_context("spawn").Process(target=len, args=((),)).start()
        wait = "print('ready', flush=True); import time; time.sleep(600)"
        child = subprocess.Popen([sys.executable, "-c", wait], stdout=subprocess.PIPE)
        child.stdout.readline()

def heard(number, _frame):
    state = "lives" if child.poll() is None else "has ended"
    print(f"heard {number}, child {state}", flush=True)

thread = threading.Thread(target=start)
thread.start()
thread.join()
signal.signal(signal.SIGINT, heard)
signal.signal(signal.SIGTERM, heard)
print(child.pid, flush=True)
while True:
    signal.pause()
"""


@pytest.fixture(params=["polite", "deaf"])
def family(request: pytest.FixtureRequest) -> Iterator[tuple[set[int], bool]]:
    """A process and its child; whether they have to be killed."""
    argv = [sys.executable, "-c", _PARENT, request.param]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        yield {parent.pid, child}, request.param == "deaf"
        parent.kill()


def test_all_are_found_and_all_are_ended(family: tuple[set[int], bool]) -> None:
    """Those that do not listen are killed, and counted."""
    pids, is_deaf = family
    assert pids <= descendants(os.getpid())
    assert end_all(pids, 0.2 if is_deaf else 10.0) == (2 if is_deaf else 0)
    assert end_all(pids, 10.0) == 0


def test_a_stranger_that_has_ended_is_no_error() -> None:
    """Between the look and the signal anybody may end."""
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        pass
    assert end_all({child.pid}, 0.0) == 0


def test_a_signal_to_the_group_reaches_only_their_leader() -> None:
    """Ctrl-C in a terminal: whoever leads hears it and goes on, and so does what it has started."""
    with subprocess.Popen(
        [sys.executable, "-c", _LEADER], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as leader:
        assert leader.stdout is not None
        child = int(leader.stdout.readline())
        for number in (signal.SIGINT, signal.SIGTERM):
            os.killpg(leader.pid, number)
            assert leader.stdout.readline().strip() == f"heard {number.value}, child lives"
        os.killpg(leader.pid, signal.SIGKILL)
    assert child
