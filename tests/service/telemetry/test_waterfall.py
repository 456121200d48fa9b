"""The waterfall: plain text, exact figures, never wider than the terminal."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from protocols.telemetry import Outcome, Phase
from service.telemetry.stories import story_as_dict
from service.telemetry.waterfall import render_waterfall
from tests.service.telemetry.tales import SAMPLED, outcome_of, tale, tale_of_each

if TYPE_CHECKING:
    from protocols.telemetry import RequestStory


def test_a_served_request():
    """Where each part of the time went, to scale, with its figure beside it."""
    lines = render_waterfall(story_as_dict(tale(trace_headers=SAMPLED, finish_reason="length")), width=63)
    assert lines == [
        "request 7  completed (length)  2500.0 ms",
        "intake    ██······································    62.500 ms",
        "resolve   ·██·····································    62.500 ms",
        "execute   ··███████·······························   375.000 ms",
        "  waiting ··███···································   125.000 ms",
        "  prefill ····█████·······························   250.000 ms",
        "stream    ········████████████████████████████████  2000.000 ms",
        "12 tokens in (4 cached), 9 out, first token after 500.0 ms, th…",
        "trace 0123456789abcdef0123456789abcdef",
    ]


def test_a_request_that_ended_early_says_where():
    """The outcome, its reason and the phase stand in the headline."""
    lines = render_waterfall(
        story_as_dict(tale(Outcome.FAILED, Phase.PREFILL, error_kind="GenerationFailed"))
    )
    assert lines[0] == "request 7  failed (GenerationFailed) in prefill  2500.0 ms"
    assert not any(line.startswith("stream") for line in lines)


@pytest.mark.parametrize("story", tale_of_each(), ids=outcome_of)
@pytest.mark.parametrize("width", [1, 48, 80, 200])
def test_no_line_is_too_wide(story: RequestStory, width: int):
    """Below 48 columns it stays at 48, where a bar still shows something."""
    assert max(map(len, render_waterfall(story_as_dict(story), width))) <= max(width, 48)


@given(st.lists(st.floats(0, 1e5), min_size=6, max_size=6).map(sorted), st.integers(48, 200))
def test_bars_cover_the_request_without_gaps(times: list[float], width: int):
    """Each bar has at least one cell and begins where the one before it ended; the last ends at the edge.

    Of the hops that is so, and of the executor's two parts, which are as long as their hop.
    """
    names = ("arrived_s", "admitted_s", "resolved_s", "submitted_s", "first_token_s", "ended_s")
    story = story_as_dict(structs.replace(tale(), **dict(zip(names, times, strict=True))))
    bars = [line for line in render_waterfall(story, width) if line.endswith(" ms") and "█" in line]
    assert len(bars) == 6
    spans = [(bar.index("█"), bar.rindex("█")) for bar in bars]
    assert all(end - start + 1 == bar.count("█") for (start, end), bar in zip(spans, bars, strict=True))
    if times[5] - times[0] > 0.001:
        intake, resolve, execute, waiting, prefill, stream = spans
        assert intake[0] == 10
        assert stream[1] == width - 14
        for row in ((intake, resolve, execute, stream), (intake, resolve, waiting, prefill, stream)):
            assert all(abs(two[0] - one[1]) <= 1 for one, two in itertools.pairwise(row))
        assert (waiting[0], prefill[1]) == execute


def test_a_failed_request_says_what_broke():
    """The engine's own words, where it has any, in place of the kind of error."""
    story = tale(Outcome.FAILED, Phase.DECODE, error_kind="GenerationFailed", error_text="a mask failed")
    assert "failed (a mask failed) in decode" in render_waterfall(story_as_dict(story))[0]
