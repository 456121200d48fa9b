"""Real processes for the end-to-end tests: a frontend, any number of workers, all on the loopback."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from service.demo.client import Client, Piece, StreamFailed
from service.demo.processes import Child, free_port
from tests.e2e.waiting import wait_until

# A model may have to be loaded on a machine that is busy with other things.
READY_S = 180.0
ROOT = Path(__file__).resolve().parents[2]
# The console script.
PROGRAM = (sys.executable, "-m", "service")


class Stack:
    """One frontend and its workers, found through files in a folder of their own."""

    def __init__(
        self,
        folder: Path,
        worker_options: Sequence[str],
        *,
        workers: int = 1,
        environ: Mapping[str, str] | None = None,
        discovery: str = "file",
        plane: str = "tcp",
        has_frontend: bool = True,
        frontend_options: Sequence[str] = (),
        program: Sequence[str] = PROGRAM,
    ) -> None:
        self._folder = folder
        self._program = list(program)
        self.options = list(worker_options)
        self._frontend_options = list(frontend_options)
        self._network = ["--discovery-backend", discovery, "--request-plane", plane]
        folder.mkdir(parents=True, exist_ok=True)
        self._environ = {
            **os.environ,
            "DYN_FILE_KV": str(folder / "discovery"),
            "DYN_TCP_RPC_HOST": "127.0.0.1",
            "DYN_SYSTEM_HOST": "127.0.0.1",
            "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "0.5",
            "HF_HUB_OFFLINE": "1",
            **(environ or {}),
        }
        self._ports: set[int] = set()
        self.http_port = self._port()
        self.client = Client(self.http_port)
        self.frontend = self._start_frontend() if has_frontend else None
        self.workers: list[Worker] = [self.add_worker() for _ in range(workers)]

    def __enter__(self) -> Stack:
        try:
            return self.wait_ready()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()

    def add_worker(
        self,
        options: Sequence[str] | None = None,
        environ: Mapping[str, str] | None = None,
        program: Sequence[str] | None = None,
    ) -> Worker:
        """Start one more; ``program`` is what runs with the worker's options."""
        port = self._port()
        argv = [*(self._program if program is None else program), *self._network]
        argv += self.options if options is None else list(options)
        environment = {**self._environ, "DYN_SYSTEM_PORT": str(port), **(environ or {})}
        child = Child("worker", argv, environment, self._folder / f"worker-{port}.log")
        return Worker(child, Client(port), port)

    def wait_ready(self, workers: int | None = None) -> Stack:
        """Until the frontend takes requests for a model and every worker says it serves."""
        wanted = self.workers if workers is None else self.workers[:workers]
        self._wait(lambda: bool(self.client.open_models()) and all(worker.is_healthy() for worker in wanted))
        return self

    def model(self) -> str:
        """The one model that is served."""
        return self.client.models()[0]

    def chat(self, content: str, **options: Any) -> tuple[int, dict[str, Any]]:
        """A unary chat request; status and decoded body."""
        body = {"model": self.model(), "messages": [{"role": "user", "content": content}], **options}
        status, text = self.client.post("/v1/chat/completions", body)
        return status, json.loads(text)

    def complete(self, prompt: str, **options: Any) -> tuple[int, dict[str, Any]]:
        """A unary completions request; status and decoded body."""
        body = {"model": self.model(), "prompt": prompt, **options}
        status, text = self.client.post("/v1/completions", body)
        return status, json.loads(text)

    def events(self, route: str, body: dict[str, Any]) -> list[dict[str, Any]]:
        """All events of a streamed answer; an error event is one of them."""
        status, text = self.client.post(f"/v1/{route}", {"model": self.model(), "stream": True, **body})
        assert status == 200, text
        lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
        return [json.loads(line) for line in lines if line != "[DONE]"]

    def stop(self) -> None:
        """Workers first; whoever does not go is killed by its own pid."""
        for worker in self.workers:
            worker.child.ask_to_stop()
        for worker in self.workers:
            worker.child.wait(20)
        if self.frontend is not None:
            self.frontend.ask_to_stop()
            self.frontend.wait(10)

    def _start_frontend(self) -> Child:
        argv = [
            sys.executable,
            "-m",
            "dynamo.frontend",
            "--http-host",
            "127.0.0.1",
            "--http-port",
            str(self.http_port),
        ]
        argv += [*self._network, "--migration-limit", "3", *self._frontend_options]
        return Child("frontend", argv, self._environ, self._folder / "frontend.log")

    def _port(self) -> int:
        port = free_port(frozenset(self._ports))
        self._ports.add(port)
        return port

    def _wait(self, is_so: Any) -> None:
        def is_so_and_all_live() -> bool:
            for child in (self.frontend, *(worker.child for worker in self.workers)):
                if child is not None and child.exit_code is not None:
                    raise AssertionError(
                        f"{child.name} ended with {child.exit_code}:\n" + "\n".join(child.last_lines(40))
                    )
            return bool(is_so())

        def said() -> str:
            return "not ready:\n" + "\n".join(self.workers[0].child.last_lines(40))

        wait_until(is_so_and_all_live, said, READY_S, every_s=0.05)


@dataclass
class Worker:
    """One worker process, and its system server at a port of the loopback."""

    child: Child
    system: Client
    port: int

    def is_healthy(self) -> bool:
        """Whether its own health answers 200."""
        try:
            return self.system.get("/health")[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def control(self, name: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """One call of a control route."""
        status, text = self.system.post(f"/engine/control/{name}", body or {})
        assert status == 200, text
        answer: dict[str, Any] = json.loads(text)
        return answer

    def status(self) -> dict[str, Any]:
        """Its own words on where it is."""
        return self.control("status")

    def wait_status(self, is_so: Any, timeout_s: float = 10.0) -> dict[str, Any]:
        """Ask until the status is as wished."""
        last: dict[str, Any] = {}

        def is_as_wished() -> bool:
            last.clear()
            last.update(self.status())
            return bool(is_so(last))

        wait_until(is_as_wished, lambda: last, timeout_s, every_s=0.01)
        return last

    def send(self, number: signal.Signals) -> None:
        """A signal to its own pid."""
        os.kill(self.child.pid, number)

    def log(self) -> str:
        """Everything it said."""
        return self.child.log.read_text(encoding="utf-8", errors="replace")


@dataclass
class Reader:
    """A streaming client in a thread: collects its pieces, or why it failed."""

    client: Client
    model: str
    question: str
    options: dict[str, Any]
    pieces: list[Piece] = field(default_factory=list)
    error: Exception | None = None
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _thread: threading.Thread | None = None

    def start(self) -> Reader:
        """Begin to read."""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        return self

    def wait_text(self, count: int, timeout_s: float = 30.0) -> None:
        """Until that many pieces with text have come."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.texts >= count or self.error is not None, timeout_s)
        if self.error is not None:
            raise self.error

    def finish(self, timeout_s: float = 60.0) -> Reader:
        """Until the stream ended."""
        assert self._thread is not None
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), "the stream did not end"
        return self

    @property
    def texts(self) -> int:
        """Pieces with text so far."""
        return sum(1 for piece in self.pieces if piece.text)

    @property
    def text(self) -> str:
        """The whole answer so far."""
        return "".join(piece.text for piece in self.pieces)

    @property
    def reason(self) -> str | None:
        """Its finish reason."""
        return next((piece.reason for piece in self.pieces if piece.reason), None)

    def _read(self) -> None:
        try:
            with self.client.ask(self.model, self.question, **self.options) as pieces:
                for piece in pieces:
                    with self._changed:
                        self.pieces.append(piece)
                        self._changed.notify_all()
        except (StreamFailed, OSError, http.client.HTTPException) as exc:
            with self._changed:
                self.error = exc
                self._changed.notify_all()


def hang_up(port: int, model: str, question: str, after_bytes: int, **options: Any) -> None:
    """Send a streaming request, read some bytes of the answer, and reset the connection."""
    body = {"model": model, "messages": [{"role": "user", "content": question}], "stream": True, **options}
    payload = json.dumps(body).encode()
    lines = ["POST /v1/chat/completions HTTP/1.1", "Host: t", "Content-Type: application/json"]
    head = "\r\n".join([*lines, f"Content-Length: {len(payload)}", "", ""])
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(head.encode() + payload)
        got = 0
        while got < after_bytes:
            got += len(connection.recv(4096))
