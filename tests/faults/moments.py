"""Workers that stop at a chosen moment, and how to get past it."""

from __future__ import annotations

import errno
import os
import re
import signal
import socket
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.engines import Served
from tests.e2e.stacks import Stack, Worker
from tests.e2e.waiting import wait_until

PROGRAM = (sys.executable, "-m", "tests.doubles.moment_worker")
BOTH = [signal.SIGTERM, signal.SIGINT]
# What the framework adds to every figure of ours.
FRAMEWORK_LABELS = frozenset(
    {
        "dynamo_namespace",
        "dynamo_component",
        "dynamo_endpoint",
        "worker_id",
        "model",
        "model_name",
    }
)


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
        found: list[int] = []

        def is_there() -> bool:
            try:
                found.append(os.open(self.path, os.O_WRONLY | os.O_NONBLOCK))
            except OSError as exc:
                if exc.errno != errno.ENXIO:
                    raise
            return bool(found)

        wait_until(is_there, f"nobody stands at {self.path.name}")
        return found[0]


def moment_stack(
    served: Served,
    folder: Path,
    model: Path,
    moment: str,
    gate: Gate,
    *options: str,
    has_frontend: bool = True,
) -> Stack:
    """One worker that stops at this moment until the gate opens."""
    return served.stack(
        folder / "stack",
        model,
        *options,
        step_ms=10,
        environ={"MOMENT": moment, "MOMENT_GATE": str(gate.path)},
        has_frontend=has_frontend,
        program=PROGRAM,
    )


def wait_catching(worker: Worker, numbers: Iterable[signal.Signals]) -> None:
    """Until the worker has handlers of its own for these signals."""
    status = Path(f"/proc/{worker.child.pid}/status")
    wanted = sum(1 << (number - 1) for number in numbers)

    def has_them() -> bool:
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("SigCgt"))
        return int(line.split()[1], 16) & wanted == wanted

    wait_until(has_them, "no handler for a signal", every_s=0.001)


def wait_handled(pid: int) -> None:
    """Until the kernel holds no signal of this process back."""
    status = Path(f"/proc/{pid}/status")

    def has_none() -> bool:
        return not any(
            line.startswith(("SigPnd", "ShdPnd")) and int(line.split()[1], 16)
            for line in status.read_text().splitlines()
        )

    wait_until(has_none, "a signal that nobody handles", every_s=0.001)


def figures_of(worker: Worker) -> dict[str, float]:
    """Every figure of ours on its metrics page, by name and our own labels."""
    status, page = worker.system.get("/metrics")
    assert status == 200
    return read_figures(page)


def read_figures(page: str) -> dict[str, float]:
    """``dynamo_actor_requests_total{outcome="completed"}`` -> 3.0; labels of the framework left out."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(page):
        for name, labels, value, *_ in family.samples:
            ours = {key: text for key, text in labels.items() if key not in FRAMEWORK_LABELS}
            shown = ",".join(f'{key}="{text}"' for key, text in sorted(ours.items()))
            if name.startswith("dynamo_actor_"):
                found[f"{name}{{{shown}}}" if shown else name] = value
    return found


def listed(folder: Path) -> list[Path]:
    """The workers that a frontend would find in the store of a stack in this folder.

    What the framework keeps about their models goes when it has not been renewed for some seconds.
    """
    return [path for path in (folder / "discovery" / "v1" / "instances").rglob("*") if path.is_file()]


def forget_dead(folder: Path) -> None:
    """Let the store forget workers that nobody can reach, as it does when their leases have run out."""
    for instance in listed(folder):
        port = re.search(r"127\.0\.0\.1:(\d+)", instance.read_text(encoding="utf-8"))
        assert port is not None
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", int(port[1]))) != 0:
                instance.unlink()


@contextmanager
def starting(stack: Stack) -> Iterator[Worker]:
    """The first worker of a stack that need not come up; stopped in every case."""
    try:
        yield stack.workers[0]
    finally:
        stack.stop()
