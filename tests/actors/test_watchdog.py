"""Promises of the hang watch: a hang is noticed, and nothing else is taken for one."""

from __future__ import annotations

import pytest

from actors.watchdog import HangWatch


class Watch:
    """A watch whose clock is set by hand."""

    def __init__(self, *, has_stepped: bool = True) -> None:
        self.now_s = 0.0
        self.watch = HangWatch(30.0, lambda: self.now_s)
        if has_stepped:
            self.watch.stepped()

    def at(self, now_s: float, *, is_owed: bool = True) -> bool:
        self.now_s = now_s
        return self.watch.is_hung(is_owed=is_owed)


def test_a_step_that_is_owed_for_the_timeout_is_a_hang() -> None:
    """Not before it, and at it."""
    watch = Watch()
    assert [watch.at(now_s) for now_s in (0.0, 15.0, 29.999, 30.0)] == [False, False, False, True]


def test_every_step_starts_the_time_again() -> None:
    """A slow engine is not a hung one."""
    watch = Watch()
    for now_s in range(0, 300, 20):
        assert not watch.at(now_s)
        watch.watch.stepped()


def test_nothing_owed_is_no_hang() -> None:
    """Idle, or everybody held back by their readers: the time begins when a step is owed again."""
    watch = Watch()
    assert not watch.at(0.0)
    assert not watch.at(20.0, is_owed=False)
    assert not watch.at(100.0)
    assert not watch.at(129.0)
    assert watch.at(130.0)


def test_the_very_first_step_may_take_as_long_as_it_takes() -> None:
    """Kernels are compiled in it."""
    watch = Watch(has_stepped=False)
    assert not watch.at(0.0)
    assert not watch.at(10_000.0)


@pytest.mark.parametrize("timeout_s", [1.0, 30.0, 300.0])
def test_it_asks_often_enough(timeout_s: float) -> None:
    """Noticed within a tenth more than the time-out."""
    assert HangWatch(timeout_s, lambda: 0.0).pause_s == timeout_s / 10
