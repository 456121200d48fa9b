"""Repeated lines: the first is said, the others are counted."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from service.telemetry.repeats import EVERY_S, RepeatLimiter, quiet_library

if TYPE_CHECKING:
    from tests.service.telemetry.readings import Lines


class _Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_one_a_minute_with_the_number_held_back():
    """Nothing is lost without a count."""
    clock = _Clock()
    limiter = RepeatLimiter(clock=clock)
    assert [limiter.admit("key") for _ in range(4)] == [0, None, None, None]
    clock.now_s += EVERY_S
    assert [limiter.admit("key") for _ in range(2)] == [3, None]


def test_keys_do_not_silence_each_other():
    """Each has its own minute."""
    limiter = RepeatLimiter(clock=_Clock())
    assert [limiter.admit(key) for key in "abab"] == [0, 0, None, None]


def test_the_table_is_bounded():
    """A client that makes up new keys for ever costs nothing for ever; the newest are remembered."""
    limiter = RepeatLimiter(clock=_Clock())
    for number in range(10_000):
        assert limiter.admit(number) == 0
    assert limiter.admit(9_999) is None
    assert limiter.admit(0) == 0


def test_a_library_that_repeats_itself_is_quiet(lines: Lines):
    """The same place in its code says it once, whoever owns the root logger by then."""
    quiet_library("a_loud_library")
    quiet_library("a_loud_library")
    logger = logging.getLogger("a_loud_library.deep.inside")
    for number in range(5):
        logger.error("cannot reach %s", f"collector {number}")
    logger.error("something else")
    assert [record.getMessage() for record in lines.records] == ["cannot reach collector 0", "something else"]
