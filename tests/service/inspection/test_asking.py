"""A fleet is asked at once and within bounds, and whoever asks can leave at any time."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import _base as futures
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import to_builtins

from service.inspection import asking
from service.inspection.allowance import Allowance, AllowanceSpent
from service.inspection.asking import Heard, Question, hear
from service.inspection.at_once import at_once
from service.inspection.command import trace_command
from service.telemetry.stories import Kept
from tests.e2e.waiting import wait_until
from tests.service.inspection.fleet import life, moved
from tests.service.routes import answering

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE_S = 15.0
_LAST = Question(None, Kept.LAST, 64)


@contextmanager
def _talking(first: bytes, then: bytes) -> Iterator[tuple[str, threading.Event]]:
    """A server that never comes to an end; its address, and when somebody has called it."""
    is_called, is_over = threading.Event(), threading.Event()

    def talk(listener: socket.socket) -> None:
        with suppress(OSError), listener.accept()[0] as connection:
            connection.recv(1 << 16)
            connection.sendall(first)
            is_called.set()
            while not is_over.wait(0.02):
                connection.sendall(then)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_S)
        talking = threading.Thread(target=talk, args=(listener,))
        talking.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", is_called
        finally:
            is_over.set()
            talking.join()


def _is_main_thread_waiting() -> bool:
    """For what another thread has to say, as a future does it."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and frame.f_code.co_filename != futures.__file__:
        frame = frame.f_back
    return frame is not None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("then", [b"", b"X"], ids=["silent", "dripping"])
@pytest.mark.parametrize("command", ["trace", "status"])
def test_a_signal_ends_the_wait_for_workers(command: str, then: bytes, number: signal.Signals):
    """At once, without a word, whatever the worker does meanwhile."""
    with _talking(b"HTTP/1.1 200 OK\r\n", then) as (url, is_called):
        child = subprocess.Popen(
            [sys.executable, "-m", "service", command, "--url", url],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": os.environ["PATH"]},
        )
        try:
            assert is_called.wait(PATIENCE_S)
            sent_s = time.monotonic()
            child.send_signal(number)
            assert child.communicate(timeout=PATIENCE_S) == (b"", b"")
        finally:
            child.kill()
            child.communicate()
    assert child.returncode == 1
    # A call has 10 s: it is not waited for.
    assert time.monotonic() - sent_s < 4.0


def test_a_signal_that_wakes_nobody_ends_the_wait():
    """As one does that comes just before the wait: Python's handler is due, and its thread is blocked."""
    is_over = threading.Event()

    def leave(*_: object) -> None:
        raise SystemExit(3)

    def call() -> bool:
        wait_until(_is_main_thread_waiting, "the main thread waits")
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        return is_over.wait(PATIENCE_S)

    before = signal.signal(signal.SIGUSR1, leave)
    began_s = time.monotonic()
    try:
        with pytest.raises(SystemExit):
            at_once([call], 1)
    finally:
        is_over.set()
        signal.signal(signal.SIGUSR1, before)
    assert time.monotonic() - began_s < PATIENCE_S


def test_results_come_in_the_order_of_their_calls():
    """Whichever is ready first."""
    is_second_done = threading.Event()
    calls: list[Callable[[], bool | None]] = [lambda: is_second_done.wait(PATIENCE_S), is_second_done.set]
    assert at_once(calls, 2) == [True, None]
    assert at_once([partial(abs, number) for number in range(50)], 7) == list(range(50))


def test_no_more_calls_are_under_way_than_were_allowed():
    """As many as that are: each of these waits for another one."""
    both = threading.Barrier(2, timeout=PATIENCE_S)

    def call() -> threading.Thread:
        both.wait()
        return threading.current_thread()

    assert len(set(at_once([call] * 40, 2))) == 2


def test_what_a_call_raises_is_raised_and_ends_the_rest():
    """A bug is not hidden by those who go on, and nobody waits for them."""
    is_over, before = threading.Event(), threading.active_count()

    def wait() -> None:
        is_over.wait(PATIENCE_S)

    def fail() -> None:
        raise LookupError("a bug")

    begun: list[int] = []
    calls: list[Callable[[], None]] = [fail, wait, wait, lambda: begun.append(1)]
    began_s = time.monotonic()
    with pytest.raises(LookupError, match="a bug"):
        at_once(calls, 2)
    assert time.monotonic() - began_s < PATIENCE_S
    is_over.set()
    wait_until(lambda: threading.active_count() == before, "the threads go on", PATIENCE_S)
    assert begun == []


def _answer_of(*lives: Any) -> bytes:
    return json.dumps({"worker": {}, "stories": [to_builtins(each.story) for each in lives]}).encode()


def _asked_by(number: int, answer: Callable[[int, dict[str, Any]], bytes]) -> Heard:
    """What so many workers tell, each by its place and the body."""

    def answer_of(place: int, _name: str, body: dict[str, Any]) -> tuple[int, bytes]:
        return 200, answer(place, body)

    with ExitStack() as fleet:
        urls = [fleet.enter_context(answering(partial(answer_of, place))) for place in range(number)]
        return hear(urls, _LAST, {})


def test_a_fleet_is_asked_again_for_so_many_and_no_more(monkeypatch: pytest.MonkeyPatch):
    """For the latest first; of how many it was not asked is known."""
    monkeypatch.setattr(asking, "_MOST_AGAIN", 10)
    again: list[tuple[int, str]] = []

    def answer(place: int, body: dict[str, Any]) -> bytes:
        if "id" in body:
            again.append((place, body["id"]))
            return _answer_of()
        cut = [moved(engine_id=number, context_id=f"{place}-{number}") for number in range(4)]
        return _answer_of(*(life(each, "one", float(each.engine_id)) for each in cut))

    heard = _asked_by(3, answer)
    assert len(heard.journeys) == 12
    assert sorted(again) == [(place, f"{of}-3") for place in range(3) for of in range(3)]
    assert heard.unasked == 9


def test_a_worker_that_is_silent_when_asked_again_is_counted():
    """Not as one that told nothing in the first place; the request is shown as far as it is known."""

    def answer(place: int, body: dict[str, Any]) -> bytes:
        if place == 1 and "id" in body:
            return b"no"
        return _answer_of(life(moved(), "one", 0.0)) if place == 0 else _answer_of()

    heard = _asked_by(2, answer)
    assert [each.trouble for each in heard.asked] == [None, None]
    assert (len(heard.journeys), heard.unasked) == (1, 1)


def test_a_request_that_not_all_were_asked_for_is_said(capsys: pytest.CaptureFixture[str]):
    """In words, beside what is known of it; nobody was wrong."""
    told = _answer_of(life(moved(), "one", 0.0))

    def answer(_name: str, body: dict[str, Any]) -> tuple[int, bytes]:
        return (500, b"no") if "id" in body else (200, told)

    with answering(answer) as one, answering(answer) as two:
        assert trace_command(["--url", one, "--url", two]) == 0
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert "1 of the requests may have lives on other workers" in line
    assert "request 40" in captured.out


def test_answers_that_are_too_long_together_are_left_out(monkeypatch: pytest.MonkeyPatch):
    """What fits is shown, and the rest is named."""
    told = _answer_of(life(moved(is_moved=False), "one", 0.0))
    monkeypatch.setattr(asking, "_MOST_BYTES", 2 * len(told) + len(told) // 2)
    heard = _asked_by(5, lambda _place, _body: told)
    troubles = [each.trouble for each in heard.asked if each.trouble is not None]
    assert len(troubles) >= 3
    assert all("is left out: all answers together have more than" in trouble for trouble in troubles)
    assert len(heard.journeys) == 5 - len(troubles)


def test_an_allowance_that_is_spent_stays_so():
    """Also for a piece that would still have fitted."""
    allowance = Allowance(3 << 20)
    allowance.take(2 << 20)
    with pytest.raises(AllowanceSpent, match="more than 3 MiB"):
        allowance.take(2 << 20)
    with pytest.raises(AllowanceSpent):
        allowance.take(1)
