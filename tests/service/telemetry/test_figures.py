"""The figures of a request: computed once, in order, adding up."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from protocols.telemetry import Outcome, Phase
from service.telemetry.figures import HopName, figures_of
from tests.service.telemetry.tales import SAMPLED, TRACE_ID, pace_of, tale, tale_of_each


def test_every_hop_of_a_served_request():
    """Each hop begins where the one before it ended, and lasts what the story says."""
    figures = figures_of(tale())
    assert [(hop.name, hop.duration_s) for hop in figures.hops] == [
        (HopName.INTAKE, 0.0625),
        (HopName.RESOLVE, 0.0625),
        (HopName.EXECUTE, 0.375),
        (HopName.STREAM, 2.0),
    ]
    assert (figures.request_s, figures.queue_s, figures.ttft_s) == (2.5, 0.25, 0.5)


def test_mean_gap_counts_the_gaps_and_not_the_tokens():
    """Nine tokens in two seconds after the first: eight gaps of a quarter second."""
    assert figures_of(tale(completion_tokens=9)).itl_mean_s == 0.25


def test_choices_run_side_by_side():
    """Eighteen tokens of two choices are nine each, with the same gaps as nine of one."""
    assert figures_of(tale(completion_tokens=18, n=2)).itl_mean_s == 0.25


def test_the_median_gap_is_none_of_the_long_ones():
    """Of eight gaps one is a second long: the mean has it, the median does not."""
    pace = pace_of(*((100.5 + 0.125 * gap, gap + 1) for gap in range(8)), (102.5, 9))
    assert figures_of(tale(completion_tokens=9, pace=pace)).itl_p50_s == 0.125


def test_tokens_of_one_step_share_its_gap():
    """Three tokens after three quarters of a second came one every quarter."""
    assert figures_of(tale(pace=pace_of((100.5, 1), (101.25, 4)))).itl_p50_s == 0.25


def test_no_median_without_a_gap_or_without_service():
    """One mark is no gap; a request that ended early spent its time on something else."""
    assert figures_of(tale(pace=pace_of((100.5, 1)))).itl_p50_s is None
    assert figures_of(tale(Outcome.STALLED, pace=pace_of((100.5, 1), (101.0, 2)))).itl_p50_s is None


@pytest.mark.parametrize("completion_tokens", [0, 1])
def test_no_gap_without_two_tokens(completion_tokens: int):
    """One token has no gap, and nothing is divided by nothing."""
    assert figures_of(tale(completion_tokens=completion_tokens)).itl_mean_s is None


def test_no_gap_for_a_request_that_was_not_served():
    """A stalled reader's waiting is no time between tokens."""
    assert figures_of(tale(Outcome.STALLED)).itl_mean_s is None


@pytest.mark.parametrize(
    ("phase", "hops"), [(Phase.RESOLVING, 2), (Phase.WAITING, 3), (Phase.PREFILL, 3), (Phase.DECODE, 4)]
)
def test_the_last_hop_is_the_one_it_ended_in(phase: Phase, hops: int):
    """It lasts until the end; later hops do not exist."""
    figures = figures_of(tale(Outcome.FAILED, phase))
    assert len(figures.hops) == hops
    assert figures.hops[-1].end_s == 102.5


def test_trace_is_named_when_there_is_one():
    """Stories and log lines can be joined with the caller's trace."""
    trace = figures_of(tale(trace_headers=SAMPLED)).trace
    assert trace is not None
    assert trace.trace_id == TRACE_ID


_SECONDS = st.floats(0, 1e6, allow_nan=False)


@given(st.lists(_SECONDS, min_size=6, max_size=6), st.sampled_from(Phase))
def test_hops_add_up_whatever_the_clocks_say(times: list[float], phase: Phase):
    """No hop runs backwards, hops touch each other, and all figures lie within the request."""
    if phase is Phase.FINISHED:
        phase = Phase.DECODE
    names = ("arrived_s", "admitted_s", "resolved_s", "submitted_s", "first_token_s", "ended_s")
    story = tale(Outcome.FAILED, phase)
    reached = {
        name: value for name, value in zip(names, times, strict=True) if getattr(story, name) is not None
    }
    figures = figures_of(structs.replace(story, **reached))
    assert figures.hops[0].start_s == times[0]
    assert all(one.end_s == two.start_s for one, two in itertools.pairwise(figures.hops))
    assert all(hop.duration_s >= 0 for hop in figures.hops)
    assert figures.hops[-1].end_s - times[0] == figures.request_s
    assert all(
        value is None or 0 <= value <= figures.request_s for value in (figures.queue_s, figures.ttft_s)
    )


def test_there_is_a_tale_of_every_outcome():
    """The tests below miss none."""
    assert [story.outcome for story in tale_of_each()] == list(Outcome)
