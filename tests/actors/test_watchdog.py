"""Promises of the hang watch: a hang is noticed, and nothing else is taken for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.watchdog import HangWatch

TIMEOUT_S = 30.0


def look(watch: HangWatch, *, is_owed: bool = True, progress: int = 0) -> bool:
    return watch.look(is_owed=is_owed, progress=progress)


def looks_until_hung(watch: HangWatch, *, most: int = 100) -> int | None:
    """How many looks in a row, a step being owed at each, it takes; None when it never does."""
    return next((number for number in range(most) if look(watch)), None)


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
        assert not any(look(watch) for _ in range(9))
        watch.stepped()


def test_progress_without_a_step_starts_the_time_again(watch: HangWatch) -> None:
    """One long step, a sign of life in it now and then: never a hang, however long it takes."""
    assert not any(look(watch, progress=number // 9) for number in range(1000))


def test_progress_that_stops_is_a_hang(watch: HangWatch) -> None:
    """From the look that saw the last of it on, as from one that saw a step."""
    for number in range(50):
        look(watch, progress=number)
    assert [look(watch, progress=49) for _ in range(10)] == [False] * 9 + [True]


def test_nothing_owed_is_no_hang(watch: HangWatch) -> None:
    """Idle, or everybody held back by their readers: the time begins when a step is owed again."""
    for _ in range(9):
        look(watch)
    assert not look(watch, is_owed=False)
    assert looks_until_hung(watch) == 10


def test_the_very_first_step_may_take_as_long_as_it_takes() -> None:
    """Kernels are compiled in it, whether or not anything is seen of that."""
    watch = HangWatch(TIMEOUT_S)
    assert looks_until_hung(watch) is None
    assert not look(watch, progress=1)
    assert looks_until_hung(watch) is None


def test_an_engine_moves_while_it_steps_or_computes(watch: HangWatch) -> None:
    """Not before its first step, and not when two looks have found nothing."""
    seen = [HangWatch(TIMEOUT_S).is_moving(1), watch.is_moving(0)]
    for _ in range(2):
        look(watch)
        seen.append(watch.is_moving(0))
    watch.stepped()
    seen.append(watch.is_moving(0))
    for progress in (0, 0, 1):
        look(watch, progress=progress)
    assert [*seen, watch.is_moving(1)] == [False, True, True, False, True, True]


def test_progress_is_seen_when_it_is_asked_for(watch: HangWatch) -> None:
    """Not only at the next look, and what a look has seen already is no news."""
    for _ in range(3):
        look(watch, progress=7)
    assert [watch.is_moving(7), watch.is_moving(8), watch.is_moving(7)] == [False, True, False]


@given(
    signs_s=st.lists(st.floats(0.0, 200.0), max_size=20),
    first_look_s=st.floats(0.0, 2.999),
    are_steps=st.lists(st.booleans(), min_size=20, max_size=20),
)
def test_a_hang_is_noticed_between_the_timeout_and_a_tenth_more(
    signs_s: list[float], first_look_s: float, are_steps: list[bool]
) -> None:
    """Counted from the last sign of life, step or progress, wherever between two looks it came."""
    watch = HangWatch(TIMEOUT_S)
    watch.stepped()
    signs = sorted(zip(signs_s, are_steps, strict=False))
    now_s, progress, last_s = first_look_s, 0, 0.0
    while True:
        while signs and signs[0][0] <= now_s:
            last_s, is_step = signs.pop(0)
            progress += not is_step
            if is_step:
                watch.stepped()
        if look(watch, progress=progress):
            break
        now_s += watch.pause_s
    assert TIMEOUT_S - 1e-6 <= now_s - last_s <= TIMEOUT_S * 1.1 + 1e-6
