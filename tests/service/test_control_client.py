"""The client of the control routes: whoever answers, and whatever is asked, ends in time and in words."""

from __future__ import annotations

import itertools
import json
import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from service.control_client import ControlFailed, call_route, default_url
from service.exit_codes import ExitCode
from tests.service.routes import answering

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def endless(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server that says one thing and then, every few milliseconds, another one for ever."""
    first, then = request.param
    is_over = threading.Event()

    def talk(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        # Who was talked to leaves first.
        with connection, suppress(ConnectionError):
            connection.sendall(first)
            while not is_over.wait(0.005):
                connection.sendall(then)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=talk, args=(listener,))
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        is_over.set()
        thread.join()


@pytest.mark.parametrize(
    "endless",
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", b" "),
        (b"HTTP/1.1 200 OK\r\n", b"X"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"", b""),
    ],
    ids=["body", "header", "continue", "silence"],
    indirect=True,
)
def test_an_answer_without_an_end_is_left(endless: str):
    """The patience is that of the whole call, however busily somebody talks."""
    began_s = time.monotonic()
    with pytest.raises(ControlFailed, match=r"no whole answer within 0\.2 s$") as failed:
        call_route(endless, "status", {}, patience_s=0.2)
    assert time.monotonic() - began_s < 2.0
    assert failed.value.code is ExitCode.UNAVAILABLE


def test_a_host_is_called_at_all_of_its_addresses(monkeypatch: pytest.MonkeyPatch):
    """As one has that listens at the older kind only."""
    with answering(lambda _name, _body: (200, b'{"state": "serving"}')) as url, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        ports = (closed.getsockname()[1], int(url.rpartition(":")[2]))
        kind = (socket.AF_INET, socket.SOCK_STREAM, 0, "")
        found = [(*kind, ("127.0.0.1", port)) for port in ports]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        assert call_route("http://worker", "status", {}) == {"state": "serving"}
        del found[1]
        with pytest.raises(ControlFailed, match=r"no worker answers at http://worker: .*refused"):
            call_route("http://worker", "status", {})


def test_an_endless_answer_is_not_kept():
    """A worker's longest is far shorter; the rest of it is not read."""
    with (
        answering(lambda _name, _body: (200, b"[" * (9 << 20))) as url,
        pytest.raises(ControlFailed, match="is no worker of ours") as failed,
    ):
        call_route(url, "status", {})
    assert len(str(failed.value)) < 300


@pytest.mark.parametrize("host", ["a b", "x" * 70, "a..b", "\N{SNOWMAN}" * 70, "127.0.0.1:80:80"])
def test_an_address_that_cannot_be_one_is_named(host: str):
    """In words; it is the operator's own."""
    with pytest.raises(ControlFailed, match="http://HOST:PORT is expected") as failed:
        call_route(f"http://{host}", "status", {})
    assert failed.value.code is ExitCode.CONFIGURATION


def test_a_refusal_is_told_with_what_is_allowed():
    """The end of it is what helps; of one that goes on and on the beginning is enough."""
    words = "which: " + "x" * 150 + " is not accepted: one of last, slowest, failed"
    texts = itertools.chain([words.encode()], itertools.repeat(b"x" * 10_000))
    with answering(lambda _name, _body: (400, next(texts))) as url:
        with pytest.raises(ControlFailed, match=r"one of last, slowest, failed$"):
            call_route(url, "trace", {})
        with pytest.raises(ControlFailed) as failed:
            call_route(url, "trace", {})
    assert len(str(failed.value)) < 600


def test_a_refusal_of_the_framework_is_not_longer():
    """It answers with HTTP 200 while the worker shuts down."""
    told = json.dumps({"status": "error", "message": "not now " * 10_000}).encode()
    with (
        answering(lambda _name, _body: (200, told)) as url,
        pytest.raises(ControlFailed, match=r"the framework at .* refused: not now") as failed,
    ):
        call_route(url, "status", {})
    assert len(str(failed.value)) < 600


@pytest.mark.parametrize(
    "written", [b"x" * 60_000, b"HTTP/1.1 200 OK\r\n" + b"x" * 70_000], ids=["line", "header"]
)
def test_what_is_no_http_is_told_in_short(written: bytes):
    """The beginning of it is enough to know it by."""

    def answer(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, suppress(ConnectionError):
            connection.recv(1 << 16)
            connection.sendall(written + b"\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        with pytest.raises(ControlFailed, match="does not speak HTTP") as failed:
            call_route(f"http://127.0.0.1:{listener.getsockname()[1]}", "status", {})
        thread.join()
    assert len(str(failed.value)) < 300


def test_a_refusal_is_told_in_its_own_words():
    """Not as the JSON that they came in; with what is allowed."""
    told = {"error": "Handler error", "message": "which: 'x' is not accepted: one of last, slowest, failed"}
    with (
        answering(lambda _name, _body: (500, json.dumps(told).encode())) as url,
        pytest.raises(ControlFailed, match=r"\(HTTP 500\): which: 'x' is not accepted, allowed: one of last"),
    ):
        call_route(url, "trace", {})


def test_a_route_that_is_off_says_what_to_set():
    """A worker of ours has its status there, and nothing else."""

    def answer(name: str, _body: object) -> tuple[int, bytes]:
        return (200, b'{"state": "serving"}') if name == "status" else (404, b'{"error": "Route not found"}')

    with answering(answer) as url, pytest.raises(ControlFailed, match="drain is off at") as failed:
        call_route(url, "drain", {})
    assert "DYN_ACTOR_CONTROL_TOKEN is not set on it" in str(failed.value)
    assert failed.value.code is ExitCode.UNEXPECTED


@pytest.mark.parametrize("command", ["status", "trace"])
def test_a_port_of_somebody_else_is_called_so(command: str):
    """A frontend answers 404 without a word."""
    with (
        answering(lambda _name, _body: (404, b"")) as url,
        pytest.raises(ControlFailed, match="is no worker of ours") as failed,
    ):
        call_route(url, command, {})
    assert "not a frontend" in str(failed.value)


@pytest.mark.parametrize("port", ["-1", "0", "abc", "65536", "9" * 5000, " 9090", "\N{FULLWIDTH DIGIT NINE}"])
def test_a_port_that_is_none_names_its_variable(port: str):
    """-1 and 0 are the framework's own words for none and for any."""
    with pytest.raises(ControlFailed, match=r"^DYN_SYSTEM_PORT: .* is not allowed: a port from 1 to 65535"):
        default_url({"DYN_SYSTEM_PORT": port})
    assert default_url({"DYN_SYSTEM_PORT": "9090"}) == "http://127.0.0.1:9090"
