"""One frontend and the workers that compete behind it, each a model of its own name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

from service.demo.client import Client
from service.demo.processes import Child, free_port
from tests.bench.load import Load, Result

_ROOT = Path(__file__).resolve().parents[2]
_READY_S = 90.0
_STOP_S = 20.0


@dataclass(frozen=True, slots=True)
class Contestant:
    """A worker and its command line. The name is also its model's and its component's."""

    name: str
    argv: Sequence[str]


@dataclass(frozen=True, slots=True)
class Shape:
    """How many ask at once, how many answers are read in all, and how long an answer is."""

    concurrency: int
    requests: int
    tokens: int = 128


class Arena:
    """Started by entering, stopped by leaving. Every process is in its own log file in ``folder``."""

    def __init__(self, folder: Path, contestants: Sequence[Contestant]) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._environ = {
            **os.environ,
            "DYN_FILE_KV": str(folder / "discovery"),
            "DYN_TCP_RPC_HOST": "127.0.0.1",
            "DYN_SYSTEM_HOST": "127.0.0.1",
            "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "0.2",
            "HF_HUB_OFFLINE": "1",
        }
        self._ports: set[int] = set()
        self.http_port = self._port()
        self._client = Client(self.http_port)
        self._contestants = list(contestants)
        self._frontend: Child
        self._workers: dict[str, Child] = {}
        self.system_ports: dict[str, int] = {}

    def __enter__(self) -> Arena:
        argv = [sys.executable, "-m", "dynamo.frontend", "--http-host", "127.0.0.1"]
        argv += ["--http-port", str(self.http_port), "--discovery-backend", "file", "--request-plane", "tcp"]
        self._frontend = Child("frontend", argv, self._environ, self._folder / "frontend.log")
        try:
            for contestant in self._contestants:
                self._start(contestant)
            self._wait_ready()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._stop()

    def measure(self, name: str, shape: Shape) -> Result:
        """One run of the load generator against one contestant. Raises CalledProcessError when it failed."""
        done = subprocess.run(self._load(name, shape), cwd=_ROOT, stdout=subprocess.PIPE, check=True)
        return Result(**json.loads(done.stdout))

    @contextmanager
    def under_load(self, name: str, shape: Shape) -> Iterator[None]:
        """The same load while the block runs. Raises RuntimeError when it ended before the block did."""
        load = subprocess.Popen(self._load(name, shape), cwd=_ROOT, stdout=subprocess.DEVNULL)
        try:
            yield
            if load.poll() is not None:
                raise RuntimeError(f"the load of {shape} ended too early, with {load.returncode}")
        finally:
            load.kill()
            load.wait()

    def _load(self, name: str, shape: Shape) -> list[str]:
        load = Load(
            port=self.http_port,
            model=name,
            concurrency=shape.concurrency,
            requests=shape.requests,
            tokens=shape.tokens,
            pids={"worker": self._workers[name].pid, "frontend": self._frontend.pid},
        )
        return [sys.executable, "-m", "tests.bench.load", json.dumps(asdict(load))]

    def _start(self, contestant: Contestant) -> None:
        port = self.system_ports[contestant.name] = self._port()
        environ = {**self._environ, "DYN_SYSTEM_PORT": str(port)}
        log = self._folder / f"{contestant.name}.log"
        self._workers[contestant.name] = Child(contestant.name, contestant.argv, environ, log)

    def _wait_ready(self) -> None:
        """Until the frontend lists every contestant. Raises RuntimeError with the log of who ended."""
        give_up_s = time.monotonic() + _READY_S
        missing = set(self._workers)
        while missing:
            for child in (self._frontend, *self._workers.values()):
                if child.exit_code is not None or time.monotonic() > give_up_s:
                    lines = "\n".join(child.last_lines(40))
                    raise RuntimeError(
                        f"{child.name} (exit code {child.exit_code}); missing {missing}:\n{lines}"
                    )
            time.sleep(0.1)
            missing = set(self._workers) - set(self._client.models())

    def _stop(self) -> None:
        """Workers first, all at once; whoever does not go is killed by its own pid."""
        for worker in self._workers.values():
            worker.ask_to_stop()
        for worker in self._workers.values():
            worker.wait(_STOP_S)
        self._frontend.ask_to_stop()
        self._frontend.wait(_STOP_S)

    def _port(self) -> int:
        port = free_port(frozenset(self._ports))
        self._ports.add(port)
        return port


def our_worker(name: str, model: Path, step_ms: float, *options: str) -> Contestant:
    """The daemon with its synthetic engine and all its telemetry."""
    argv = [sys.executable, "-m", "service", "--discovery-backend", "file", "--request-plane", "tcp"]
    argv += ["--endpoint", f"dyn://bench.{name}.generate", "--model", str(model), "--served-model-name", name]
    argv += ["--engine", "synthetic", "--synthetic-step-ms", f"{step_ms:g}", "--max-num-seqs", "256"]
    return Contestant(name, [*argv, *options])


def peer(name: str, model: Path, step_ms: float) -> Contestant:
    """A peer of tests/bench/peers by the name of its file."""
    argv = [sys.executable, "-m", f"tests.bench.peers.{name}", "--name", name, "--model", str(model)]
    return Contestant(name, [*argv, "--step-ms", f"{step_ms:g}"])
