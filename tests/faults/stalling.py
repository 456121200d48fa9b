"""A client with a small window that reads the first bytes of its answer and nothing more."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

# More tokens, in chunks of one, than the kernel and a frontend take before a worker notices (some 34,000).
DEEP_TOKENS = 100_000


def stall(port: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> socket.socket:
    """Ask, and read until the answer has begun. Whoever closes the connection lets its client leave."""
    payload = json.dumps(body).encode()
    lines = ["POST /v1/chat/completions HTTP/1.1", "Host: t", "Content-Type: application/json"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    head = "\r\n".join([*lines, f"Content-Length: {len(payload)}", "", ""])
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", port))
    connection.sendall(head.encode() + payload)
    connection.recv(256)
    return connection
