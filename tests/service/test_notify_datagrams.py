"""One datagram to a service manager that may be there, busy, gone, or back again."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from service.notify.datagrams import Datagrams
from tests.service.notify_manager import Manager


@pytest.mark.parametrize("is_abstract", [False, True])
def test_a_message_arrives_whole(tmp_path: Path, is_abstract: bool) -> None:
    """By a path, and by an abstract name."""
    with Manager(None if is_abstract else tmp_path) as manager:
        datagrams = Datagrams(manager.address)
        assert datagrams.send(b"READY=1\nSTATUS=a = b")
        assert manager.read() == {"READY": "1", "STATUS": "a = b"}
        datagrams.close()


def test_a_full_socket_is_an_answer_and_no_wait(tmp_path: Path) -> None:
    """Not sent, and said so; once there is room, messages arrive again."""
    with Manager(tmp_path) as manager:
        filled = manager.fill()
        datagrams = Datagrams(manager.address)
        assert not datagrams.send(b"READY=1")
        assert datagrams.last_error == "BlockingIOError"
        for _ in range(filled):
            manager.read()
        assert datagrams.send(b"READY=1")
        assert manager.read() == {"READY": "1"}
        datagrams.close()


def test_a_manager_that_has_gone_is_an_answer_and_one_that_is_back_hears_us(tmp_path: Path) -> None:
    """At the same address, behind another socket."""
    with Manager(tmp_path) as manager:
        datagrams = Datagrams(manager.address)
        manager.go()
        assert not datagrams.send(b"STATUS=one")
        manager.come_back()
        assert datagrams.send(b"STATUS=two")
        assert manager.read() == {"STATUS": "two"}
        datagrams.close()


def test_what_is_no_socket_is_an_answer(tmp_path: Path) -> None:
    """A folder, a file, a socket of another kind, an address longer than any."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
        stream.bind(str(tmp_path / "stream"))
        for address in (tmp_path, tmp_path / "file", tmp_path / "stream", tmp_path / ("x" * 200)):
            datagrams = Datagrams(str(address).encode())
            assert not datagrams.send(b"READY=1")
            datagrams.close()


def test_a_message_that_is_too_long_is_an_answer(tmp_path: Path) -> None:
    """Ours are short; this is for the day when one is not."""
    with Manager(tmp_path) as manager:
        datagrams = Datagrams(manager.address)
        assert not datagrams.send(b"x" * (8 << 20))
        datagrams.close()


def test_without_a_manager_all_is_well() -> None:
    """Nothing is sent, and nobody is told to try again."""
    datagrams = Datagrams(None)
    assert datagrams.send(b"READY=1")
    datagrams.close()


def test_a_process_without_room_for_a_socket_goes_on_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many open files are no reason to end a worker."""

    def refuse(*_: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("service.notify.datagrams.socket.socket", refuse)
    datagrams = Datagrams(b"/run/notify")
    assert not datagrams.send(b"READY=1")
    assert datagrams.last_error == "OSError"
    datagrams.close()


def test_the_socket_is_not_handed_on_to_children() -> None:
    """A child that lives longer must not hold it."""
    datagrams = Datagrams(b"/run/notify")
    assert datagrams._socket is not None
    assert not datagrams._socket.get_inheritable()
    datagrams.close()
    datagrams.close()
    assert not datagrams.send(b"READY=1")
