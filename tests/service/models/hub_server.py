"""A model hub on a loopback port, as far as the hub's client needs one."""

import hashlib
import json
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(ThreadingHTTPServer):
    """Knows one repository and remembers which of its files were fetched."""

    def __init__(self, repository: str, files: Mapping[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), HubRequest)
        self.files = {f"/{repository}/resolve/{COMMIT}/{name}": content for name, content in files.items()}
        self.fetched: list[str] = []
        listing = [
            {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
            for name, content in files.items()
        ]
        about = {"id": repository, "sha": COMMIT, "siblings": [{"rfilename": name} for name in files]}
        self.pages: dict[str, Any] = {
            f"/api/models/{repository}/revision/main": about,
            f"/api/models/{repository}/tree/{COMMIT}": listing,
        }

    @property
    def endpoint(self) -> str:
        """Return the address for HF_ENDPOINT."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class HubRequest(BaseHTTPRequestHandler):
    """One request to the hub."""

    server: Hub

    def do_HEAD(self) -> None:
        """Answer the headers of a file."""
        self._answer()

    def do_GET(self) -> None:
        """Answer a description or a file."""
        path, body = self._answer()
        if path in self.server.files:
            self.server.fetched.append(path.rpartition("/")[2])
        self.wfile.write(body)

    def _answer(self) -> tuple[str, bytes]:
        path = self.path.partition("?")[0]
        headers: dict[str, str] = {}
        if path in self.server.pages:
            status, body = 200, json.dumps(self.server.pages[path]).encode()
        elif path in self.server.files:
            status, body = 200, self.server.files[path]
            headers = {"ETag": f'"{hashlib.sha1(body).hexdigest()}"', "X-Repo-Commit": COMMIT}
        else:
            status, body = 404, b"{}"
            headers = {"X-Error-Code": "RepoNotFound"}
        self.send_response(status)
        for header, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(header, value)
        self.end_headers()
        return path, body

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """Say nothing."""


@contextmanager
def open_hub(repository: str, files: Mapping[str, bytes]) -> Generator[Hub]:
    """Serve one repository for the block, from a thread."""
    with Hub(repository, files) as hub:
        thread = threading.Thread(target=hub.serve_forever)
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()
