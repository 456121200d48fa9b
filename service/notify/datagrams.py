"""One datagram to the service manager: sent at once or not at all, and never an error."""

from __future__ import annotations

import socket
from contextlib import suppress


class Datagrams:
    """A socket of our own for one address. Any thread, also a signal handler: it holds no lock.

    address: of the socket module; None sends nothing, and says that all went well.
    """

    def __init__(self, address: bytes | None) -> None:
        self._address = address
        self._socket: socket.socket | None = None
        self.last_error: str | None = None
        if address is None:
            return
        try:
            # Not handed on to children (Python's own default), and full is an answer, not a reason to wait.
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
        except OSError as exc:
            self.last_error = type(exc).__name__

    def send(self, message: bytes) -> bool:
        """Whether it is on its way. False: try again later; ``last_error`` names what was wrong.

        Not connected: a manager that starts anew listens at the same address, behind another socket.
        """
        if self._address is None:
            return True
        if self._socket is None:
            return False
        try:
            self._socket.sendto(message, self._address)
        except OSError as exc:
            self.last_error = type(exc).__name__
            return False
        return True

    def close(self) -> None:
        """Idempotent."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.close()
