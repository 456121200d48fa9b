"""The control routes where the framework has them: real HTTP on the loopback, to a real facade."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.service.worker import FacadeWorker


@contextmanager
def system_server(worker: FacadeWorker) -> Iterator[str]:
    """A worker's. Yields the address."""

    def answer(name: str, body: dict[str, Any]) -> tuple[int, bytes]:
        try:
            return 200, json.dumps(worker.loop.run(worker.facade.engine_control(name, body))).encode()
        except Exception as exc:
            return 500, json.dumps({"message": str(exc)}).encode()

    with answering(answer) as url:
        yield url


@contextmanager
def answering(answer: Callable[[str, dict[str, Any]], tuple[int, bytes]]) -> Iterator[str]:
    """Somebody who answers a route's name and body with a status and these bytes. Yields the address."""

    class Routes(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, written = answer(self.path.removeprefix("/engine/control/"), body)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(written)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Routes)
    serving = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        serving.join()
