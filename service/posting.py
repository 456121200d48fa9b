"""One POST over plain HTTP. Its answer is whole when its time is over, however it was dripped out."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

# A worker's longest answer is 64 stories in 200 KB. Whoever sends more is none, and the rest is not read.
_LONGEST_ANSWER = 2 << 20
_PIECE = 1 << 16

# Told of each piece's length before it is kept; what it raises ends the call.
OnPiece = Callable[[int], None]


def ignore_piece(_length: int) -> None:
    """Nobody counts."""


def post(
    address: tuple[str, int],
    path: str,
    body: Mapping[str, Any],
    patience_s: float,
    on_piece: OnPiece = ignore_piece,
) -> tuple[int, str]:
    """Status and text. Blocks for no more than patience_s, and for what the resolver of names takes.

    Raises OSError (TimeoutError when the answer is not whole in time), UnicodeError and HTTPException.
    """
    try:
        with closing(_Call(*address, time.monotonic() + patience_s)) as call:
            call.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            with call.getresponse() as response:
                return response.status, _text_of(response, on_piece)
    except TimeoutError as exc:
        raise TimeoutError(f"no whole answer within {patience_s:g} s") from exc


def _text_of(response: http.client.HTTPResponse, on_piece: OnPiece) -> str:
    answer = bytearray()
    while len(answer) < _LONGEST_ANSWER and (piece := response.read1(_PIECE)):
        on_piece(len(piece))
        answer += piece
    return answer.decode(errors="replace")


class _Call(http.client.HTTPConnection):
    """One connection, every wait of which ends at ``until_s``; monotonic time."""

    def __init__(self, host: str, port: int, until_s: float) -> None:
        super().__init__(host, port)
        self._until_s = until_s

    def connect(self) -> None:
        self.sock = _connected(self.host, self.port, self._until_s)


class _PatientSocket(socket.socket):
    """A time-out of ours is that of the whole answer, where a socket's is that of each piece."""

    def __init__(self, until_s: float, family: int, kind: int, protocol: int) -> None:
        super().__init__(family, kind, protocol)
        self._until_s = until_s

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        self.settimeout(_left_s(self._until_s))
        return super().recv_into(buffer, nbytes, flags)


def _connected(host: str, port: int, until_s: float) -> _PatientSocket:
    """To the first of the host's addresses that takes it; each has its share of the time."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for place, (family, kind, protocol, _, address) in enumerate(found, 1):
        sock = _PatientSocket(until_s, family, kind, protocol)
        try:
            sock.settimeout(_left_s(until_s) / (len(found) - place + 1))
            sock.connect(address)
            sock.settimeout(_left_s(until_s))
            # The body is not held back until the head was acknowledged.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except BaseException as exc:
            sock.close()
            if place == len(found) or not isinstance(exc, OSError):
                raise
        else:
            return sock
    raise OSError(f"{host} has no address")


def _left_s(until_s: float) -> float:
    """Raises TimeoutError when there is nothing left."""
    left_s = until_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s
