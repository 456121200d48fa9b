"""Repeated lines: the first is said, the others are counted."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from protocols.bounds import Bound
from service.telemetry.repeats import EVERY_S, MOST_DIFFERENT, MOST_KEYS, RepeatLimiter, quiet_library
from tests.doubles.listeners import RecordingTelemetry

if TYPE_CHECKING:
    from tests.service.telemetry.readings import Lines


class _Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def _limiter(clock: _Clock) -> tuple[RepeatLimiter, RecordingTelemetry]:
    told = RecordingTelemetry()
    return RepeatLimiter(clock=clock, on_bound=told.bound_reached), told


def test_one_a_minute_with_the_number_held_back():
    """Nothing is lost without a count."""
    clock = _Clock()
    limiter, told = _limiter(clock)
    assert [limiter.admit("event", "key") for _ in range(4)] == [0, None, None, None]
    assert told.bounds == {Bound.LOG_REPEATS: 3}
    clock.now_s += EVERY_S
    assert [limiter.admit("event", "key") for _ in range(2)] == [3, None]


def test_keys_and_events_do_not_silence_each_other():
    """Each has its own minute."""
    limiter, _ = _limiter(_Clock())
    assert [limiter.admit("event", key) for key in "abab"] == [0, 0, None, None]
    assert limiter.admit("another", "a") == 0


def test_keys_that_somebody_makes_up_cannot_flood():
    """Sixteen different ones of an event a minute; how many were held back is said with the next one."""
    clock = _Clock()
    limiter, told = _limiter(clock)
    said = [limiter.admit("event", number) for number in range(1000)]
    assert said == [0] * MOST_DIFFERENT + [None] * (1000 - MOST_DIFFERENT)
    assert told.bounds == {Bound.LOG_REPEATS: 1000 - MOST_DIFFERENT}
    assert limiter.admit("another", "key") == 0
    clock.now_s += EVERY_S
    assert [limiter.admit("event", number) for number in (5000, 5001)] == [1000 - MOST_DIFFERENT, 0]


def test_the_table_is_bounded():
    """Whatever the keys are, they cost nothing for ever; the newest are remembered."""
    clock = _Clock()
    limiter, told = _limiter(clock)
    events = [f"event {number}" for number in range(MOST_KEYS // MOST_DIFFERENT + 1)]
    for event in events:
        for number in range(MOST_DIFFERENT):
            assert limiter.admit(event, number) == 0
    assert told.bounds == {Bound.LOG_KEYS: MOST_DIFFERENT}
    assert limiter.admit(events[-1], 0) is None
    clock.now_s += EVERY_S / 2
    assert limiter.admit(events[1], 0) is None


def test_a_library_that_repeats_itself_is_quiet(lines: Lines):
    """The same place in its code says it once, whoever owns the root logger by then."""
    quiet_library("a_loud_library")
    quiet_library("a_loud_library")
    logger = logging.getLogger("a_loud_library.deep.inside")
    for number in range(5):
        logger.error("cannot reach %s", f"collector {number}")
    logger.error("something else")
    assert [record.getMessage() for record in lines.records] == ["cannot reach collector 0", "something else"]
