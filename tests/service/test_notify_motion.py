"""Whether a start gets on: told from what its processes compute, read and write."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from service.notify.motion import LEAST_BYTES, LEAST_CPU_SHARE, Motion

LOOK_S = 5.0
TICKS = os.sysconf("SC_CLK_TCK")


class Processes:
    """A /proc with as much in it as is looked at."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, pid: int, *, ticks: int = 100, count: int = 0, children: str = "") -> None:
        """name: one that tries to look like the fields behind it."""
        task = self.folder / str(pid) / "task" / str(pid)
        task.mkdir(parents=True, exist_ok=True)
        fields = ["S", *["0"] * 10, str(ticks), "0", "0", "0", "20", "0"]
        (self.folder / str(pid) / "stat").write_text(f"{pid} (a) b ( 9 9) {' '.join(fields)}\n", "utf-8")
        io = f"rchar: {count}\nwchar: 0\nsyscr: 99999999\nread_bytes: 0\ncancelled_write_bytes: 0\n"
        (self.folder / str(pid) / "io").write_text(io, "utf-8")
        (task / "children").write_text(children, "utf-8")


@pytest.fixture
def processes(tmp_path: Path) -> Processes:
    found = Processes(tmp_path)
    found.put(7, children="8 9 ")
    found.put(8)
    found.put(9)
    return found


def test_who_waits_does_not_move(processes: Processes) -> None:
    """Timers and a line of the log now and then are not getting on."""
    motion = Motion(7, processes.folder)
    assert not motion.has_moved(LOOK_S)
    processes.put(
        7, ticks=100 + int(LEAST_CPU_SHARE * LOOK_S * TICKS) - 1, count=LEAST_BYTES - 1, children="8 9"
    )
    assert not motion.has_moved(LOOK_S)


@pytest.mark.parametrize("pid", [7, 8])
def test_who_computes_moves_and_so_does_who_has_a_child_that_computes(processes: Processes, pid: int) -> None:
    """Once: what counts is what was used since the last look."""
    motion = Motion(7, processes.folder)
    children = "8 9" if pid == 7 else ""
    processes.put(pid, ticks=100 + int(LEAST_CPU_SHARE * LOOK_S * TICKS), children=children)
    assert motion.has_moved(LOOK_S)
    assert not motion.has_moved(LOOK_S)


def test_who_reads_moves(processes: Processes) -> None:
    """Weights from a slow disk cost hardly any processor time."""
    motion = Motion(7, processes.folder)
    processes.put(9, count=LEAST_BYTES)
    assert motion.has_moved(LOOK_S)
    assert not motion.has_moved(LOOK_S)


def test_a_child_that_comes_or_goes_is_no_error(processes: Processes) -> None:
    """One that has worked takes its figures away, which is getting on too."""
    motion = Motion(7, processes.folder)
    processes.put(7, children="8 9 10 11")
    processes.put(10, ticks=1000)
    assert motion.has_moved(LOOK_S)
    processes.put(7, children="8 9")
    assert motion.has_moved(LOOK_S)


def test_where_nothing_can_be_seen_a_start_counts_as_moving(tmp_path: Path) -> None:
    """Without /proc nobody can be said to be stuck."""
    assert Motion(7, tmp_path).has_moved(LOOK_S)


def test_real_processes_are_seen() -> None:
    """This one, and a child: at work until it has computed for long enough, and then asleep."""
    program = "import time\nwhile time.process_time() < 0.3: pass\nprint('done', flush=True)\ntime.sleep(600)"
    motion = Motion()
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"done\n"
            assert motion.has_moved(LOOK_S)
            # A share that this process alone, which does nothing now, does not reach.
            assert not motion.has_moved(600.0)
        finally:
            child.kill()
