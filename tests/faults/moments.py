"""Workers that stop at a chosen moment, and how to get past it."""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.stacks import Stack, Worker

PROGRAM = (sys.executable, "-m", "tests.doubles.moment_worker")
BOTH = [signal.SIGTERM, signal.SIGINT]
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Gate:
    """A FIFO at which a process waits for us."""

    path: Path

    @classmethod
    def in_folder(cls, folder: Path, name: str = "gate") -> Gate:
        """A closed one."""
        gate = cls(folder / name)
        os.mkfifo(gate.path)
        return gate

    def open(self, text: str = "") -> None:
        """Wait until somebody stands there, and let him go on with this text."""
        gate = self.wait_reader()
        os.write(gate, text.encode())
        os.close(gate)

    def wait_reader(self) -> int:
        """Until somebody has opened it for reading; a descriptor that holds him there."""
        give_up_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                return os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
            except OSError as exc:
                if exc.errno != errno.ENXIO or time.monotonic() > give_up_s:
                    raise
            time.sleep(0.01)


def moment_environ(moment: str, gate: Gate) -> dict[str, str]:
    """What makes a worker of `PROGRAM` stop there."""
    return {"MOMENT": moment, "MOMENT_GATE": str(gate.path)}


def wait_log(worker: Worker, text: str, timeout_s: float = PATIENCE_S) -> None:
    """Until the worker has said this."""
    give_up_s = time.monotonic() + timeout_s
    while text not in worker.log():
        assert worker.child.exit_code is None, (worker.child.exit_code, worker.log())
        assert time.monotonic() < give_up_s, worker.log()
        time.sleep(0.02)


def wait_handled(pid: int) -> None:
    """Until the kernel holds no signal of this process back."""
    status = Path(f"/proc/{pid}/status")
    while any(
        line.startswith(("SigPnd", "ShdPnd")) and int(line.split()[1], 16)
        for line in status.read_text().splitlines()
    ):
        time.sleep(0.001)


def listed(folder: Path) -> list[Path]:
    """The workers that a frontend would find in the store of a stack in this folder.

    What the framework keeps about their models goes when it has not been renewed for some seconds.
    """
    return [path for path in (folder / "discovery" / "v1" / "instances").rglob("*") if path.is_file()]


@contextmanager
def starting(stack: Stack) -> Iterator[Worker]:
    """The first worker of a stack that need not come up; stopped in every case."""
    try:
        yield stack.workers[0]
    finally:
        stack.stop()
