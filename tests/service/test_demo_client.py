"""The demo's client, against a frontend that comes up in steps, as Dynamo's does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from service.demo.client import Client


class Frontend(ThreadingHTTPServer):
    """Lists what it is told to, and opens its route when it is told to."""

    models: tuple[str, ...] = ()
    is_open = False


class _Answers(BaseHTTPRequestHandler):
    server: Frontend

    def do_GET(self) -> None:
        self._say(200, {"data": [{"id": name} for name in self.server.models]})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._say(400 if self.server.is_open else 404, {})

    def log_message(self, *_: object) -> None:
        """Nothing: the base class writes to stderr."""

    def _say(self, status: int, body: object) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())


@pytest.fixture
def frontend() -> Iterator[Frontend]:
    """On a free port of the loopback."""
    with Frontend(("127.0.0.1", 0), _Answers) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_model_can_be_asked_once_its_route_is_open(frontend: Frontend) -> None:
    """A list of models comes a moment before the route to them: whoever believed it got a 404."""
    client = Client(frontend.server_address[1])
    assert client.open_models() == []
    frontend.is_open = True
    assert client.open_models() == []
    frontend.models, frontend.is_open = ("smollm2-135m",), False
    assert (client.models(), client.open_models()) == (["smollm2-135m"], [])
    frontend.is_open = True
    assert client.open_models() == ["smollm2-135m"]


def test_nobody_listens(frontend: Frontend) -> None:
    """No model, and no error: it may come up yet."""
    port = frontend.server_address[1]
    frontend.shutdown()
    frontend.server_close()
    assert Client(port).open_models() == []
