"""Promises of the hang watch: a hang is noticed, and nothing else is taken for one."""

from __future__ import annotations

import pytest

from actors.watchdog import HangWatch

TIMEOUT_S = 30.0


def looks_until_hung(watch: HangWatch, *, most: int = 100) -> int | None:
    """How many looks in a row, a step being owed at each, it takes; None when it never does."""
    return next((look for look in range(most) if watch.look(is_owed=True)), None)


@pytest.fixture
def watch() -> HangWatch:
    """Of an engine that has made its first step."""
    watch = HangWatch(TIMEOUT_S)
    watch.stepped()
    return watch


@pytest.mark.parametrize("timeout_s", [1.0, 30.0, 300.0])
def test_a_step_that_is_owed_for_the_timeout_is_a_hang(timeout_s: float) -> None:
    """Not before it, and at it: the first look only finds that something is owed."""
    watch = HangWatch(timeout_s)
    watch.stepped()
    looks = looks_until_hung(watch)
    assert looks is not None
    assert looks * watch.pause_s == pytest.approx(timeout_s)


def test_every_step_starts_the_time_again(watch: HangWatch) -> None:
    """A slow engine is not a hung one."""
    for _ in range(100):
        assert not any(watch.look(is_owed=True) for _ in range(9))
        watch.stepped()


def test_nothing_owed_is_no_hang(watch: HangWatch) -> None:
    """Idle, or everybody held back by their readers: the time begins when a step is owed again."""
    for _ in range(9):
        watch.look(is_owed=True)
    assert not watch.look(is_owed=False)
    assert looks_until_hung(watch) == 10


def test_the_very_first_step_may_take_as_long_as_it_takes() -> None:
    """Kernels are compiled in it."""
    assert looks_until_hung(HangWatch(TIMEOUT_S)) is None


def test_an_engine_moves_while_it_steps(watch: HangWatch) -> None:
    """Not before its first step, and not when two looks have found none."""
    seen = [HangWatch(TIMEOUT_S).is_moving, watch.is_moving]
    for _ in range(2):
        watch.look(is_owed=True)
        seen.append(watch.is_moving)
    watch.stepped()
    assert [*seen, watch.is_moving] == [False, True, True, False, True]
