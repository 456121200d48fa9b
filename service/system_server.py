"""Whether the framework's system server gets its port: without it nobody sees this worker, or drains it.

Where the port is taken the framework says one line and serves on: health, metrics and control routes are then
those of whoever was there first. So this is asked twice: before a model is looked for, and when the framework
has started its server, for two workers that start in one moment both find the port free.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc/self")
_TABLES = ("net/tcp", "net/tcp6")
# Of a line of these: address and port in hexadecimal, the state, and the number of the socket.
_LOCAL, _STATE, _NUMBER = 1, 3, 9
_LISTENS = "0A"


class SystemPortTaken(Exception):
    """The system server cannot listen where it was told to."""


@dataclass(frozen=True, slots=True)
class SystemServer:
    """Where it listens. port: 0 is any free one."""

    host: str
    port: int

    def require_port(self, proc: Path = _PROC) -> None:
        """Raises SystemPortTaken unless the port is free, or this very process listens there. Any thread."""
        refused = self.refused()
        if refused is None or (refused.errno == errno.EADDRINUSE and _is_ours(self.port, proc)):
            return
        raise SystemPortTaken(
            f"system port: {self.host}:{self.port} (DYN_SYSTEM_HOST, DYN_SYSTEM_PORT) cannot be bound: "
            f"{refused.strerror}; this worker would have neither health nor metrics nor control routes. "
            "Port 0 is any free one, -1 is none"
        )

    def refused(self) -> OSError | None:
        """Why one cannot listen there now. Binds the port for a moment."""
        if self.port == 0:
            return None
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(
                self.host, self.port, type=socket.SOCK_STREAM
            )[0]
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
        except OSError as error:
            return error
        return None


def _is_ours(port: int, proc: Path) -> bool:
    """Whether one of this process's sockets listens at the port. Where none is seen: we are no judge then."""
    listening = {number for table in _TABLES for number in _listening(proc / table, port)}
    return not listening or not listening.isdisjoint(_own_sockets(proc / "fd"))


def _listening(table: Path, port: int) -> Iterator[str]:
    """Numbers of sockets."""
    try:
        lines = table.read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        # A machine without this protocol.
        return
    for line in lines:
        words = line.split()
        if words[_STATE] == _LISTENS and int(words[_LOCAL].rpartition(":")[2], 16) == port:
            yield words[_NUMBER]


def _own_sockets(folder: Path) -> Iterator[str]:
    """Their numbers."""
    for entry in folder.iterdir():
        try:
            target = str(entry.readlink())
        except OSError:
            # Closed since it was listed.
            continue
        if target.startswith("socket:["):
            yield target.removeprefix("socket:[").removesuffix("]")
