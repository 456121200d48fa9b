"""The demo's two processes: each in a session of its own, so that Ctrl-C reaches only us.

We stop the worker first and the frontend after it, so that an answer under way still arrives.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

# Whatever is under way may finish, also on a machine that is busy with other things.
DRAIN_S = 120.0
# The framework parses its system port as a signed 16-bit number.
_PORTS = range(21000, 32000)
# Far more ports than one process takes; prime, so that starting points repeat late.
_STRIDE = 97


def free_port(avoid: frozenset[int] = frozenset()) -> int:
    """A port of the loopback that nobody listens on now. Raises OSError when all are taken."""
    # Starting points of processes lie far apart, so that two demos at once do not race for one port.
    offset = os.getpid() * _STRIDE % len(_PORTS)
    for step in range(len(_PORTS)):
        port = _PORTS[(offset + step) % len(_PORTS)]
        if port not in avoid and _is_free(port):
            return port
    raise OSError(f"no free port between {_PORTS.start} and {_PORTS.stop}")


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


class Child:
    """One process and its log file. Stopped by its own pid, never by name."""

    def __init__(self, name: str, argv: Sequence[str], environ: Mapping[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                argv,
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def ask_to_stop(self) -> None:
        """SIGTERM, once."""
        if self.exit_code is None:
            self._process.send_signal(signal.SIGTERM)

    def wait(self, timeout_s: float) -> int:
        """Its exit code; after the time-out it is killed, and the code says so."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def last_lines(self, count: int = 15) -> list[str]:
        """The end of its log, for a person who wants to know what went wrong."""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        return text.splitlines()[-count:]


class Stack:
    """A frontend and a worker that find each other through files in a private folder."""

    def __init__(self, folder: Path, worker_options: Sequence[str]) -> None:
        self.http_port = free_port()
        self.system_port = free_port(frozenset({self.http_port}))
        shared = _environment(folder)
        frontend = [
            sys.executable, "-m", "dynamo.frontend",
            "--http-host", "127.0.0.1", "--http-port", str(self.http_port),
            "--discovery-backend", "file", "--request-plane", "tcp", "--migration-limit", "3",
        ]  # fmt: skip
        worker = [
            sys.executable, "-m", "service",
            "--discovery-backend", "file", "--request-plane", "tcp", *worker_options,
        ]  # fmt: skip
        self.started_s = time.monotonic()
        self.frontend = Child("frontend", frontend, shared, folder / "frontend.log")
        try:
            self.worker = Child(
                "worker", worker, {**shared, "DYN_SYSTEM_PORT": str(self.system_port)}, folder / "worker.log"
            )
        except OSError:
            self.frontend.ask_to_stop()
            self.frontend.wait(10.0)
            raise

    def dead(self) -> Child | None:
        """The first of the two that has ended by itself."""
        for child in (self.worker, self.frontend):
            if child.exit_code is not None:
                return child
        return None

    def stop(self, drain_s: float = DRAIN_S) -> None:
        """The worker first, with time to finish; then the frontend. Idempotent."""
        self.worker.ask_to_stop()
        self.worker.wait(drain_s)
        self.frontend.ask_to_stop()
        self.frontend.wait(10.0)


def _environment(folder: Path) -> dict[str, str]:
    """Loopback and files only; what the operator set himself stays.

    The grace period is the time a router needs to notice that a worker has left. Here both are on
    one machine and share a folder, so a second is plenty.
    """
    defaults = {
        "DYN_TCP_RPC_HOST": "127.0.0.1",
        "DYN_SYSTEM_HOST": "127.0.0.1",
        "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "1",
        "DYN_ACTOR_DRAIN_TIMEOUT": f"{DRAIN_S:g}",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        # One core stays free for the frontend: two spinning threads on two busy cores are ten times slower.
        "DYN_ACTOR_THREADS": str(max(1, (os.cpu_count() or 1) - 1)),
    }
    return {**defaults, **os.environ, "DYN_FILE_KV": str(folder / "discovery"), "PYTHONUNBUFFERED": "1"}
