"""A KV cache that may still be read keeps its worker alive."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.engines.trtllm.roles.transfers import PendingTransfers, is_over, timing_of


class Clock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        """The time."""
        return self.now_s


def timing(begin_s: float, end_s: float) -> Any:
    """As the engine measures it; zero is what has not happened."""
    return SimpleNamespace(
        kv_cache_transfer_start=timedelta(seconds=begin_s), kv_cache_transfer_end=timedelta(seconds=end_s)
    )


def test_an_answer_counts_until_the_engine_gives_its_cache_up() -> None:
    """Nobody tells when it was read, so it counts for as long as it may be."""
    clock = Clock()
    transfers = PendingTransfers(clock, timeout_s=60.0)

    transfers.answered(timing(0, 0))
    clock.now_s += 59.9
    assert transfers.count == 1

    clock.now_s += 0.1
    assert transfers.count == 0


def test_an_answer_whose_cache_has_been_read_does_not_count() -> None:
    """Its timing has both ends of the transfer."""
    transfers = PendingTransfers(Clock(), timeout_s=60.0)

    transfers.answered(timing(5.0, 5.5))

    assert transfers.count == 0


@pytest.mark.parametrize(
    "unknown",
    [
        None,
        timing(0, 0),
        timing(5, 0),
        timing(0, 5),
        timing(5, 4),
        SimpleNamespace(kv_cache_transfer_end=5.0, kv_cache_transfer_start=4.0),
        SimpleNamespace(),
    ],
)
def test_what_the_engine_does_not_say_clearly_is_pending(unknown: Any) -> None:
    """No timing, half of one, or one that makes no sense is no end."""
    assert not is_over(unknown)


def test_an_engine_that_measures_nothing_has_no_timing() -> None:
    """Measuring is an option of the engine's."""
    measured = timing(1, 2)

    assert timing_of(SimpleNamespace(request_perf_metrics=None)) is None
    assert (
        timing_of(SimpleNamespace(request_perf_metrics=SimpleNamespace(timing_metrics=measured))) is measured
    )


@given(pauses=st.lists(st.floats(0, 30), max_size=30), timeout_s=st.floats(0.1, 60))
def test_the_count_is_that_of_the_answers_within_the_time_out(pauses: list[float], timeout_s: float) -> None:
    """Whenever answers come and whenever somebody looks."""
    clock = Clock()
    transfers = PendingTransfers(clock, timeout_s)
    answered: list[float] = []

    for pause_s in pauses:
        clock.now_s += pause_s
        transfers.answered(None)
        answered.append(clock.now_s)
        assert transfers.count == sum(at_s + timeout_s > clock.now_s for at_s in answered)
