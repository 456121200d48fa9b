"""How long an operator's code may hold up the engine's loop."""

from __future__ import annotations

import threading

import pytest

from actors.engines.trtllm.processors.patience import Patience, TookTooLong


class Clock:
    """Seconds, as the test says."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_what_comes_back_in_time_is_left_alone() -> None:
    """Its error is its own."""
    patience = Patience(1000.0)
    done: list[int] = []
    patience.perform(lambda: done.append(1))
    assert done == [1]
    with pytest.raises(ZeroDivisionError):
        patience.perform(lambda: done.append(1 // 0))


def test_nothing_is_interrupted_before_its_time() -> None:
    """Looked at as often as one likes; what is over is not looked at."""
    clock = Clock()
    patience = Patience(10.0, clock)

    def work() -> None:
        clock.now_s = 10.0
        patience.look()

    patience.perform(work)
    clock.now_s = 100.0
    patience.look()


def test_what_takes_too_long_is_interrupted_once() -> None:
    """However often it is looked at; and the thread that ran it is as good as before."""
    clock = Clock()
    patience = Patience(10.0, clock)
    for _ in range(3):
        begun = threading.Event()

        def work(begun: threading.Event = begun) -> None:
            begun.set()
            while True:
                pass

        def look(begun: threading.Event = begun) -> None:
            begun.wait()
            clock.now_s += 11.0
            patience.look()
            patience.look()

        looking = threading.Thread(target=look)
        looking.start()
        with pytest.raises(TookTooLong):
            patience.perform(work)
        looking.join()
    assert sum(range(1000)) == 499_500


def test_several_threads_have_a_time_each() -> None:
    """An engine may run in the worker's own process beside others."""
    clock = Clock()
    patience = Patience(10.0, clock)
    late = threading.Event()
    told: list[str] = []

    def endless() -> None:
        try:
            patience.perform(lambda: _spin(late))
        except TookTooLong:
            told.append("too long")

    thread = threading.Thread(target=endless)
    thread.start()
    late.wait()
    clock.now_s = 11.0
    patience.perform(patience.look)
    thread.join()
    assert told == ["too long"]


def test_its_own_thread_looks() -> None:
    """As long as there are calls, and again when there are new ones."""
    patience = Patience(0.02)
    for _ in range(2):
        with pytest.raises(TookTooLong):
            patience.perform(lambda: _spin(threading.Event()))
        watcher = patience._thread
        if watcher is not None:
            watcher.join()


def _spin(begun: threading.Event) -> None:
    begun.set()
    while True:
        pass
