"""Repeated lines: the first is said, the others are counted."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from protocols.bounds import Bound
from service.telemetry.repeats import EVERY_S, MOST_KEYS, RepeatLimiter, quiet_library
from tests.doubles.listeners import RecordingTelemetry

if TYPE_CHECKING:
    from tests.service.telemetry.readings import Lines


class _Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_one_a_minute_with_the_number_held_back():
    """Nothing is lost without a count."""
    clock, told = _Clock(), RecordingTelemetry()
    limiter = RepeatLimiter(clock=clock, on_bound=told.bound_reached)
    assert [limiter.admit("key") for _ in range(4)] == [0, None, None, None]
    assert told.bounds == {Bound.LOG_REPEATS: 3}
    clock.now_s += EVERY_S
    assert [limiter.admit("key") for _ in range(2)] == [3, None]


def test_keys_do_not_silence_each_other():
    """Each has its own minute."""
    limiter = RepeatLimiter(clock=_Clock())
    assert [limiter.admit(key) for key in "abab"] == [0, 0, None, None]


def test_the_table_is_bounded():
    """A client that makes up new keys for ever costs nothing for ever; the newest are remembered."""
    told = RecordingTelemetry()
    limiter = RepeatLimiter(clock=_Clock(), on_bound=told.bound_reached)
    for number in range(10_000):
        assert limiter.admit(number) == 0
    assert told.bounds == {Bound.LOG_KEYS: 10_000 - MOST_KEYS}
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
