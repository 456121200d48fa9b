"""The health check of images and compose files: 0 for a server that answers 200, 1 for all else."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from service.demo.processes import free_port
from tests.deploy.compose_files import DEPLOY

SCRIPT = DEPLOY / "container" / "healthcheck.py"


@contextmanager
def answering(status: int) -> Iterator[int]:
    """A server that has this to say to /health alone; its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/health" else 404)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def check(environ: dict[str, str], *words: str) -> tuple[int, str]:
    """Its exit code and its line, run as an image does."""
    said = subprocess.run(
        [sys.executable, SCRIPT, *words], env=environ, capture_output=True, text=True, check=False, timeout=15
    )
    assert said.stderr == ""
    return said.returncode, said.stdout.strip()


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1), (404, 1)])
def test_only_200_is_healthy(status: int, code: int) -> None:
    """A worker that loads says 503."""
    with answering(status) as port:
        url = f"http://127.0.0.1:{port}/health"
        assert check({"DYN_SYSTEM_PORT": str(port)}) == (code, f"{url}: {status}")
        assert check({"DYN_SYSTEM_PORT": "1"}, url) == (code, f"{url}: {status}")


def test_nobody_there_is_not_healthy() -> None:
    """Before the port is open, and when there is none."""
    port = free_port()
    assert check({"DYN_SYSTEM_PORT": str(port)}) == (1, f"http://127.0.0.1:{port}/health: no answer")


def test_a_server_that_never_answers_is_not_healthy_in_time() -> None:
    """It gives up before the container's engine would: that waits five seconds."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert check({"DYN_SYSTEM_PORT": str(port)}) == (1, f"http://127.0.0.1:{port}/health: no answer")


def test_a_server_that_speaks_no_http_is_not_healthy() -> None:
    """Whoever holds the port: no traceback."""

    def say_nonsense(server: socket.socket) -> None:
        with server.accept()[0] as connection:
            connection.recv(1000)
            connection.sendall(b"who is there?\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        thread = threading.Thread(target=say_nonsense, args=(server,))
        thread.start()
        assert check({"DYN_SYSTEM_PORT": str(port)})[0] == 1
        thread.join()
