"""A real etcd and a real NATS on the loopback: they can be killed, and come back with the same data."""

from __future__ import annotations

import base64
import http.client
import json
import os
import shutil
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from service.demo.processes import Child, free_port
from tests.e2e.stacks import ROOT
from tests.e2e.waiting import wait_until

_LISTENS_S = 20.0


def tool(name: str) -> str:
    """A server fetched by ``make tools``, or one from the PATH."""
    found = shutil.which(name, path=str(ROOT / ".tools" / "bin")) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not here: make tools")
    return found


def wait_listening(port: int) -> None:
    """Until somebody accepts connections there."""

    def is_listening() -> bool:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            return True
        return False

    wait_until(is_listening, f"nobody listens on port {port}", _LISTENS_S)


class Server:
    """One server on a fixed port, from a command that finds its data again."""

    def __init__(self, name: str, argv: Sequence[str], port: int, log: Path) -> None:
        self._name = name
        self._argv = list(argv)
        self._port = port
        self._log = log
        self._starts = 0
        self._child = self._start()

    def kill(self) -> None:
        """As a node that goes away: no goodbye. By its own pid."""
        os.kill(self._child.pid, signal.SIGKILL)
        self._child.wait(10)

    def start_again(self) -> None:
        """On the same port with the same data; returns when it accepts connections."""
        self._child = self._start()
        self.wait_listening()

    def wait_listening(self) -> None:
        """Until it accepts connections."""
        wait_listening(self._port)

    def stop(self) -> None:
        """In order; also when it is down already."""
        self._child.ask_to_stop()
        self._child.wait(10)

    def _start(self) -> Child:
        self._starts += 1
        return Child(self._name, self._argv, {}, self._log.with_suffix(f".{self._starts}.log"))


class Etcd(Server):
    """What lies in it, asked through its JSON gateway."""

    def instances(self) -> list[int]:
        """The lease of every worker endpoint that is registered: the framework's own keys."""
        prefix = b"v1/instances/"
        span = {"key": _base64(prefix), "range_end": _base64(prefix[:-1] + bytes([prefix[-1] + 1]))}
        return [int(pair["lease"]) for pair in self._ask("kv/range", span).get("kvs", [])]

    def left_s(self, lease: int) -> int:
        """Whole seconds until the lease ends unless somebody keeps it alive; below 0 when it has."""
        return int(self._ask("lease/timetolive", {"ID": str(lease)})["TTL"])

    def _ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
        try:
            connection.request("POST", f"/v3/{path}", json.dumps(body))
            answer: dict[str, Any] = json.loads(connection.getresponse().read())
            return answer
        finally:
            connection.close()


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


class Servers:
    """etcd and NATS on free ports of the loopback."""

    def __init__(self, folder: Path) -> None:
        client = free_port()
        peer = free_port(frozenset({client}))
        nats = free_port(frozenset({client, peer}))
        url, peer_url = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
        etcd_words = [
            tool("etcd"), "--data-dir", str(folder / "etcd"),
            "--listen-client-urls", url, "--advertise-client-urls", url,
            "--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url,
            "--initial-cluster", f"default={peer_url}",
        ]  # fmt: skip
        nats_words = [
            tool("nats-server"), "-js", "-a", "127.0.0.1", "-p", str(nats), "-sd", str(folder / "nats"),
        ]  # fmt: skip
        self.environ = {"ETCD_ENDPOINTS": url, "NATS_SERVER": f"nats://127.0.0.1:{nats}"}
        self.etcd = Etcd("etcd", etcd_words, client, folder / "etcd.log")
        self.nats = Server("nats", nats_words, nats, folder / "nats.log")

    def __enter__(self) -> Servers:
        try:
            self.etcd.wait_listening()
            self.nats.wait_listening()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Both, by their own pids."""
        for server in (self.etcd, self.nats):
            server.stop()
