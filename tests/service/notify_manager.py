"""A service manager as far as a worker sees one: a Unix datagram socket, and what comes in there."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
import uuid
from typing import TYPE_CHECKING

from service.notify import Notifier

if TYPE_CHECKING:
    from pathlib import Path

    from service.notify.events import Event

PATIENCE_S = 20.0
# The kernel notes when a message came; Python has no names for it.
_SO_TIMESTAMP = 29
_TIMEVAL = struct.Struct("@ll")


def assignments(message: bytes) -> dict[str, str]:
    """As a manager reads them: NAME=value, one a line."""
    pairs = (line.partition("=") for line in message.decode("utf-8").split("\n"))
    return {name: value for name, _, value in pairs}


class Manager:
    """Listens at ``address``; ``name`` is what NOTIFY_SOCKET has for it.

    told, at_s: what was read so far, and when each message came, not when it was read; as `time.time` has it.
    """

    def __init__(self, folder: Path | None = None) -> None:
        unique = uuid.uuid4().hex
        self.name = f"@dynamo-actor-worker-{unique}" if folder is None else str(folder / "notify.sock")
        self.address = b"\0" + self.name[1:].encode() if folder is None else self.name.encode()
        self._path = None if folder is None else folder / "notify.sock"
        self.told: list[dict[str, str]] = []
        self.at_s: list[float] = []
        self._socket = self._listen()

    def __enter__(self) -> Manager:
        return self

    def __exit__(self, *_: object) -> None:
        self.go()

    def go(self) -> None:
        """Nobody listens any more, as between two lives of a manager."""
        self._socket.close()
        if self._path is not None:
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()

    def come_back(self) -> None:
        """Another socket at the same address."""
        self._socket = self._listen()

    def fill(self) -> int:
        """Until not one more message fits; how many that were."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            count = 0
            while True:
                try:
                    sender.sendto(b"FILL=1", self.address)
                except BlockingIOError:
                    return count
                count += 1

    def read(self, timeout_s: float = PATIENCE_S) -> dict[str, str] | None:
        """The next message; None when none comes in time."""
        self._socket.settimeout(timeout_s)
        try:
            message, stamps, _, _ = self._socket.recvmsg(65536, socket.CMSG_SPACE(_TIMEVAL.size))
        except (TimeoutError, BlockingIOError):
            return None
        told = assignments(message)
        seconds, microseconds = _TIMEVAL.unpack(stamps[0][2])
        self.told.append(told)
        self.at_s.append(seconds + microseconds / 1e6)
        return told

    def read_until(
        self, name: str, value: str | None = None, timeout_s: float = PATIENCE_S
    ) -> dict[str, str]:
        """The next message that says this; a value is looked for at the beginning."""
        give_up_s = time.monotonic() + timeout_s
        while (told := self.read(max(0.0, give_up_s - time.monotonic()))) is not None:
            if name in told and (value is None or told[name].startswith(value)):
                return told
        raise AssertionError(f"{name}={value} was never said: {self.told}")

    def read_all(self) -> list[dict[str, str]]:
        """Everything that has come, also what was read before."""
        while self.read(0.0) is not None:
            pass
        return self.told

    @property
    def statuses(self) -> list[str]:
        """What an operator has seen, one after the other."""
        return [told["STATUS"] for told in self.told if "STATUS" in told]

    def _listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        listener.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMP, 1)
        listener.bind(self.address)
        return listener


class NotedNotifier(Notifier):
    """Keeps what it is told; nothing is sent."""

    def __init__(self, watchdog_s: float | None = None) -> None:
        super().__init__()
        self.events: list[Event] = []
        self._watchdog_s = watchdog_s

    @property
    def is_on(self) -> bool:
        return True

    @property
    def watchdog_s(self) -> float | None:
        return self._watchdog_s

    def tell(self, event: Event) -> None:
        self.events.append(event)
