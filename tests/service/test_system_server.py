"""A worker without its system port does not serve unseen; the framework's own server is no stranger."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from service.system_server import SystemPortTaken, SystemServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOST = "127.0.0.1"
LISTENER = """
import socket, sys
server = socket.create_server((sys.argv[1], 0))
print(server.getsockname()[1], flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=[HOST, "0.0.0.0"])
def taken(request: pytest.FixtureRequest) -> Iterator[int]:
    """A port at which another process listens."""
    argv = [sys.executable, "-c", LISTENER, request.param]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        yield int(other.stdout.readline())
        assert other.stdin is not None
        other.stdin.close()


def test_a_port_of_another_process_is_refused_with_address_and_variables(taken: int) -> None:
    """Whatever address of this machine the other one listens at."""
    words = (
        rf"system port: {HOST}:{taken} \(DYN_SYSTEM_HOST, DYN_SYSTEM_PORT\) cannot be bound: Address already"
    )
    with pytest.raises(SystemPortTaken, match=words):
        SystemServer(HOST, taken).require_port()


def test_a_port_where_this_process_listens_is_its_own() -> None:
    """The framework has started its server by the time that it is asked again."""
    with closing(socket.create_server((HOST, 0))) as server:
        here = SystemServer(HOST, server.getsockname()[1])
        here.require_port()
    here.require_port()


def test_a_port_over_ipv6_is_judged_alike() -> None:
    """Ours, and nobody's."""
    try:
        server = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        # A machine without IPv6: then the address is refused like any other that it does not have.
        with pytest.raises(SystemPortTaken, match="::1"):
            SystemServer("::1", 1 << 14).require_port()
        return
    with closing(server):
        SystemServer("::1", server.getsockname()[1]).require_port()


def test_any_free_port_is_always_to_be_had() -> None:
    """The framework finds one."""
    SystemServer("host.invalid", 0).require_port()


@pytest.mark.parametrize("host", ["192.0.2.1", "host.invalid"], ids=["not of this machine", "no host"])
def test_an_address_that_this_machine_does_not_have_is_refused(host: str) -> None:
    """With the machine's own reason."""
    with pytest.raises(SystemPortTaken, match=rf"^system port: {re.escape(host)}:9090 .* bound: \w"):
        SystemServer(host, 9090).require_port()


def test_where_listeners_cannot_be_seen_nobody_is_refused(taken: int, tmp_path: Path) -> None:
    """A machine that hides them must not keep a worker from its own server."""
    (tmp_path / "fd").mkdir()
    SystemServer(HOST, taken).require_port(tmp_path)


def test_a_socket_is_ours_only_if_it_listens_and_we_hold_it(taken: int, tmp_path: Path) -> None:
    """A connection at that port is none, nor is what closes while it is looked at, or what is no socket."""
    (tmp_path / "net").mkdir()
    (tmp_path / "fd").mkdir()
    rest = "00000000:00000000 00:00000000 00000000 0 0"
    lines = [
        "sl local_address rem_address st tx_queue rx_queue tr tm->when retrnsmt uid timeout inode",
        f"0: 0100007F:{taken:04X} 00000000:0000 0A {rest} 77 1",
        f"1: 0100007F:{taken:04X} 0100007F:1F90 01 {rest} 88 1",
        f"2: 0100007F:{taken ^ 1:04X} 00000000:0000 0A {rest} 99 1",
    ]
    (tmp_path / "net" / "tcp").write_text("\n".join(lines), encoding="ascii")
    (tmp_path / "fd" / "0").write_text("no link any more", encoding="ascii")
    for name, target in (("1", "/dev/null"), ("2", "socket:[88]"), ("3", "socket:[99]")):
        (tmp_path / "fd" / name).symlink_to(target)
    with pytest.raises(SystemPortTaken):
        SystemServer(HOST, taken).require_port(tmp_path)
    (tmp_path / "fd" / "4").symlink_to("socket:[77]")
    SystemServer(HOST, taken).require_port(tmp_path)
