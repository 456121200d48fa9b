"""Real signals to real processes: noticed before anything else, and never lost to anything later."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from service.stopping import StopSignals

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
BOTH = [signal.SIGTERM, signal.SIGINT]
PATIENCE_S = 15.0


@contextmanager
def process(program: str) -> Iterator[subprocess.Popen[bytes]]:
    """A Python that runs this in the checkout; ended whatever happens."""
    child = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def wait_line(child: subprocess.Popen[bytes], line: str) -> None:
    """Until the child has said this."""
    assert child.stdout is not None
    said = child.stdout.readline().decode().strip()
    assert said == line, child.communicate(timeout=PATIENCE_S)[1].decode()


def wait_end(child: subprocess.Popen[bytes]) -> tuple[int, str]:
    """Exit code and everything it wrote to stderr."""
    _, error = child.communicate(timeout=PATIENCE_S)
    return child.returncode, error.decode()


CONFIGURING = """
import time, service.main
def run(argv, signals):
    print("configuring", flush=True)
    time.sleep(60)
    return 1
service.main.run = run
service.main.entry_point()
"""

FINALIZING = """
import os, signal, time, weakref, service.main
class Module: pass
def run(argv, signals):
    module = Module()
    reference = weakref.ref(module, lambda _: os.kill(os.getpid(), {number}))
    del module
    time.sleep(60)
    return 1
service.main.run = run
service.main.entry_point()
"""

MAKING_A_CLASS = """
import os, signal, time, service.main
class Field:
    def __set_name__(self, owner, name): os.kill(os.getpid(), {number})
def run(argv, signals):
    class Owner:
        field = Field()
    time.sleep(60)
    return 1
service.main.run = run
service.main.entry_point()
"""

WRAPPING = """
import os, signal, time, service.main
def run(argv, signals):
    try:
        os.kill(os.getpid(), {number})
        time.sleep(60)
    except BaseException:
        print("wrapped")
    return 69
service.main.run = run
service.main.entry_point()
"""

SERVING = """
import os, signal, time, service.main
def run(argv, signals):
    signals.leave_it_to_the_framework()
    counts = []
    signals.listen(counts.append)
    print("serving", flush=True)
    while len(counts) < {wanted}:
        time.sleep(0.01)
    os.write(2, repr((counts, signals.count, signals.first_s is not None)).encode())
    return 0
service.main.run = run
service.main.entry_point()
"""

DECIDED = """
import sys, time, service.main
class SlowStream:
    def write(self, text): return len(text)
    def flush(self):
        sys.__stdout__.write("decided\\n"); sys.__stdout__.flush()
        time.sleep(1)
def run(argv, signals):
    signals.leave_it_to_the_framework()
    sys.stdout = SlowStream()
    return 69
service.main.run = run
service.main.entry_point()
"""


@pytest.mark.parametrize("number", BOTH)
def test_a_signal_during_the_configuration_ends_with_0_at_once(number: signal.Signals) -> None:
    """Nothing can be lost yet; nobody waits for anything; there is nothing to say."""
    with process(CONFIGURING) as child:
        wait_line(child, "configuring")
        child.send_signal(number)
        assert wait_end(child) == (0, "")


@pytest.mark.parametrize("number", BOTH)
def test_a_signal_that_meets_a_finalizer_ends_with_0_at_once(number: signal.Signals) -> None:
    """Imports drop locks by callbacks that let no exception out; the end does not depend on where it came."""
    with process(FINALIZING.format(number=number.value)) as child:
        assert wait_end(child) == (0, "")


@pytest.mark.parametrize("number", BOTH)
@pytest.mark.parametrize("script", [MAKING_A_CLASS, WRAPPING])
def test_a_signal_that_comes_out_as_something_else_ends_with_0(script: str, number: signal.Signals) -> None:
    """Python 3.11 makes it an error of the class that was being made; libraries catch what they import."""
    with process(script.format(number=number.value)) as child:
        assert wait_end(child) == (0, "")


@pytest.mark.parametrize("first", BOTH)
@pytest.mark.parametrize("second", BOTH)
def test_signals_while_serving_are_counted_and_told(first: signal.Signals, second: signal.Signals) -> None:
    """SIGINT counts as SIGTERM does; neither raises anything into what is running."""
    with process(SERVING.format(wanted=2)) as child:
        wait_line(child, "serving")
        child.send_signal(first)
        # The same signal twice before the first was handled would be one signal.
        if first == second:
            assert_handled(child)
        child.send_signal(second)
        assert wait_end(child) == (0, "([1, 2], 2, True)")


def assert_handled(child: subprocess.Popen[bytes]) -> None:
    """Until the kernel holds no signal of this process back."""
    pending = Path(f"/proc/{child.pid}/status")
    while any(
        line.startswith(("SigPnd", "ShdPnd")) and int(line.split()[1], 16)
        for line in pending.read_text().splitlines()
    ):
        continue
    # The handler of Python runs at its next instruction; the sleeping loop wakes for it.
    select.select([], [], [], 0.1)


@pytest.mark.parametrize("number", BOTH)
def test_a_signal_after_the_code_is_decided_changes_nothing(number: signal.Signals) -> None:
    """The framework has returned, the streams are being flushed: the process keeps its code."""
    with process(DECIDED) as child:
        wait_line(child, "decided")
        child.send_signal(number)
        assert wait_end(child) == (69, "")


def test_a_crash_prints_its_traceback_and_ends_with_1() -> None:
    """The last frame: whatever it is ends the process with a text and a code."""
    program = """
import service.main
def run(argv, signals):
    raise KeyError("a bug")
service.main.run = run
service.main.entry_point()
"""
    with process(program) as child:
        code, error = wait_end(child)
    assert code == 1
    assert "KeyError: 'a bug'" in error
    assert "Traceback" in error


@pytest.mark.parametrize(
    ("raised", "code"), [("SystemExit(3)", 3), ("SystemExit('text')", 1), ("KeyboardInterrupt", 1)]
)
def test_whatever_leaves_run_becomes_a_code(raised: str, code: int) -> None:
    """Also what is no Exception."""
    program = f"""
import service.main
def run(argv, signals):
    raise {raised}
service.main.run = run
service.main.entry_point()
"""
    with process(program) as child:
        assert wait_end(child)[0] == code


def test_threads_that_do_not_end_do_not_keep_the_process() -> None:
    """A thread of an engine that hangs must not turn a finished shutdown into a SIGKILL."""
    program = """
import threading, time, service.main
def run(argv, signals):
    threading.Thread(target=time.sleep, args=(3600,)).start()
    return 0
service.main.run = run
service.main.entry_point()
"""
    with process(program) as child:
        assert wait_end(child) == (0, "")


@pytest.mark.parametrize(("characters", "codes"), [(10, {0, 1}), (1_000_000, {1})])
def test_output_whose_reader_has_gone_is_no_crash(characters: int, codes: set[int]) -> None:
    """`dynamo-actor-worker --help | head -1` leaves no traceback, be the text buffered or not."""
    program = f"""
import sys, service.main
def run(argv, signals):
    sys.stdout.write("x" * {characters})
    return 0
service.main.run = run
service.main.entry_point()
"""
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        child = subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            stdout=write_end,
            stderr=subprocess.PIPE,
            check=False,
            timeout=PATIENCE_S,
        )
    finally:
        os.close(write_end)
    assert child.stderr == b""
    assert child.returncode in codes


def test_before_any_signal_nobody_has_asked() -> None:
    """The questions, from none to several."""
    signals = StopSignals()
    assert (signals.is_asked, signals.is_forced, signals.first_s) == (False, False, None)
    signals.note()
    first_s = signals.first_s
    assert (signals.is_asked, signals.is_forced) == (True, False)
    signals.note()
    assert (signals.is_asked, signals.is_forced, signals.first_s) == (True, True, first_s)
