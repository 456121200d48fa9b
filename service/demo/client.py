"""A small client of the frontend: what a user's program would do, with the standard library alone."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Piece:
    """Some text of an answer. ``reason`` and ``usage`` come with the last ones."""

    text: str
    at_s: float
    reason: str | None = None
    usage: dict[str, Any] | None = None


class StreamFailed(Exception):
    """The frontend answered with an error, or its stream ended without a reason."""


class Client:
    """Talks to one port of the loopback."""

    def __init__(self, port: int) -> None:
        self._port = port

    def get(self, path: str, timeout_s: float = 5.0) -> tuple[int, str]:
        """Status and body. Raises OSError when nobody listens."""
        return self._call("GET", path, None, timeout_s)

    def post(self, path: str, body: dict[str, Any], timeout_s: float = 60.0) -> tuple[int, str]:
        """Status and body. Raises OSError when nobody listens."""
        return self._call("POST", path, body, timeout_s)

    def models(self) -> list[str]:
        """Names of the models served now; empty while there are none, or nobody listens."""
        try:
            status, body = self.get("/v1/models")
        except (OSError, http.client.HTTPException):
            return []
        return [model["id"] for model in json.loads(body)["data"]] if status == 200 else []

    def open_models(self) -> list[str]:
        """Those that can be asked: the frontend lists its first one a moment before it opens the routes."""
        names = self.models()
        return names if names and self.post(_CHAT, {})[0] != _NO_ROUTE else []

    @contextmanager
    def ask(self, model: str, question: str, **options: Any) -> Generator[Iterator[Piece]]:
        """Stream the answer to one question. Leaving the block early hangs up."""
        body = {
            "model": model,
            "messages": [{"role": "user", "content": question}],
            "stream": True,
            "stream_options": {"include_usage": True},
            **options,
        }
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=120)
        try:
            connection.request("POST", _CHAT, json.dumps(body), _JSON)
            response = connection.getresponse()
            if response.status != 200:
                raise StreamFailed(f"HTTP {response.status}: {response.read(500).decode(errors='replace')}")
            yield _pieces(response)
        finally:
            connection.close()

    def _call(self, method: str, path: str, body: dict[str, Any] | None, timeout_s: float) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=timeout_s)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), _JSON)
            response = connection.getresponse()
            return response.status, response.read().decode(errors="replace")
        finally:
            connection.close()


_CHAT = "/v1/chat/completions"
_JSON = {"Content-Type": "application/json"}
_NO_ROUTE = 404


def _pieces(response: http.client.HTTPResponse) -> Iterator[Piece]:
    """Server-sent events as pieces. Raises StreamFailed for an error event or a missing reason."""
    has_reason = False
    for raw in response:
        line = raw.decode().strip()
        if not line.startswith("data: "):
            continue
        if line == "data: [DONE]":
            break
        event = json.loads(line.removeprefix("data: "))
        if "error" in event:
            raise StreamFailed(str(event["error"]))
        piece = _piece(event)
        has_reason = has_reason or piece.reason is not None
        yield piece
    if not has_reason:
        raise StreamFailed("the stream ended without a finish reason")


def _piece(event: dict[str, Any]) -> Piece:
    choice: dict[str, Any] = event["choices"][0] if event.get("choices") else {}
    text: str = choice.get("delta", {}).get("content") or ""
    return Piece(text, time.monotonic(), choice.get("finish_reason"), event.get("usage"))
