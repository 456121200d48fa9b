"""The waterfall: exact figures, never wider than the terminal, and nothing in it that a terminal obeys."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert, structs
from rich.cells import cell_len

from actors.pacing import Pacing
from protocols.rejections import RejectReason
from protocols.telemetry import CancelReason, Outcome, Phase
from service.inspection.journeys import Life, journeys_of
from service.inspection.story import Story
from service.inspection.waterfall import render_journey, render_story
from service.telemetry.stories import story_as_dict
from tests.service.inspection.fleet import HOSTILE, continued, fleet, life, moved
from tests.service.inspection.strategies import lives
from tests.service.telemetry.tales import SAMPLED, tale

if TYPE_CHECKING:
    from collections.abc import Callable

    from protocols.telemetry import RequestStory


def _lines(*told: Life, width: int = 66, encoding: str = "utf-8") -> list[str]:
    """Of the only request among them."""
    (journey,) = journeys_of(told)
    return [line.plain for line in render_journey(journey, width, encoding)]


def test_a_served_request():
    """Where each part of the time went, to scale, with its figure beside it."""
    served = tale(
        finish_reason="length", trace_headers=SAMPLED, chunks=9, pace=continued().pace._replace(gaps_s=())
    )
    assert _lines(life(served)) == [
        "request 7  completed (length)  2500.000 ms",
        "2026-11-30 17:33:20.000 UTC, worker one:9090 (torch smollm2-135m),",
        "context ctx-7, trace 0123456789abcdef0123456789abcdef",
        "intake    ██·········································    62.500 ms",
        "resolve   ·██········································    62.500 ms",
        "execute   ··███████··································   375.000 ms",
        "  waiting ··███······································   125.000 ms",
        "  prefill ····█████··································   250.000 ms",
        "stream    ········███████████████████████████████████  2000.000 ms",
        "tokens    ········◆││││││││││││││││││││││││││││││││││     9 chunks",
        "12 tokens in (4 cached), 9 out, first token after 500.000 ms,",
        "then one every 250.000 ms",
    ]


def test_a_moved_request():
    """Two lives on one time axis, the gap between them, and what ended the first one."""
    assert _lines(life(moved(), "one"), life(continued(), "two", 2.75)) == [
        "request 40  completed (length)  5250.000 ms in 2 lives",
        "2026-11-30 17:33:20.000 UTC, context moved,",
        "trace 0123456789abcdef0123456789abcdef",
        "life 1: interrupted (drain) in decode, 2500.000 ms,",
        "request 40 of worker one:9090 (torch smollm2-135m)",
        "intake    █··········································    62.500 ms",
        "resolve   ██·········································    62.500 ms",
        "execute   ·████······································   375.000 ms",
        "  waiting ·██········································   125.000 ms",
        "  prefill ··███······································   250.000 ms",
        "stream    ····█████████████████······················  2000.000 ms",
        "tokens    ····◆││││││││││││││││······················     0 chunks",
        "early end ····················✕······················        drain",
        "12 tokens in (4 cached), 9 out, first token after 500.000 ms",
        "gap       ····················░░░····················   250.000 ms",
        "life 2: completed (length), 2500.000 ms,",
        "request 3 of worker two:9090 (torch smollm2-135m)",
        "intake    ······················██···················    62.500 ms",
        "resolve   ·······················█···················    62.500 ms",
        "execute   ·······················████················   375.000 ms",
        "  waiting ·······················██··················   125.000 ms",
        "  prefill ························███················   250.000 ms",
        "stream    ··························█████████████████  2000.000 ms",
        "tokens    ··························◆││││││││││││││││     0 chunks",
        "12 tokens in (4 cached), 9 out, first token after 500.000 ms,",
        "then one every 250.000 ms, half of them within 200.000 ms",
    ]


def test_no_figure_is_cut_off():
    """However narrow the terminal is, there are more lines then."""
    for width in range(48, 130):
        assert not any("…" in line for line in _lines(life(continued()), width=width))


def test_what_lost_its_memory_and_left_early():
    """Each moment has its mark, and a count or a reason beside it."""
    (asleep,) = [journey for journey in fleet().journeys if journey.first.story.context_id == "asleep"]
    lines = {line.plain.split()[0]: line.plain for line in render_journey(asleep)}
    assert lines["preempted"].count("▼") == 8
    assert lines["preempted"].endswith("11 times")
    assert lines["early"].endswith("✕        stall")


def _tokens_row(told: RequestStory, width: int) -> str:
    """From its first token on."""
    (row,) = [line for line in _lines(life(told), width=width) if line.startswith("tokens")]
    return row[: width - 13].partition("◆")[2]


def _long_answer(gap_s: Callable[[int], float]) -> RequestStory:
    """Of 200 tokens, each so long after the one before it; its marks are thinned as a request's are."""
    pacing = Pacing()
    at_s = 100.5
    for number in range(200):
        at_s += gap_s(number) if number else 0.0
        pacing.note(at_s, 1)
    return tale(pace=pacing.pace(), ended_s=at_s, completion_tokens=200)


@pytest.mark.parametrize("width", [66, 100, 160, 300])
@pytest.mark.parametrize("slower", [1.0, 1.5, 3.0])
def test_a_steady_answer_has_no_hole(width: int, slower: float):
    """However few of its marks are kept, however wide the terminal; one slow step of many is no stall."""
    row = _tokens_row(_long_answer(lambda number: 0.05 * (slower if number % 40 == 20 else 1.0)), width)
    assert set(row) == {"│"}


@pytest.mark.parametrize("width", [66, 100, 160])
def test_a_stall_is_a_hole(width: int):
    """A second without any token, in the middle of ten seconds of them, is as long as it was."""
    row = _tokens_row(_long_answer(lambda number: 1.0 if number == 100 else 0.05), width)
    (hole,) = re.findall(r"│(·+)│", row)
    assert len(hole) == pytest.approx(len(row) * 1.0 / 10.9, abs=3)
    assert row.strip("│") == hole


@pytest.mark.parametrize(
    ("reason", "label"),
    [
        (CancelReason.CLIENT, "cancelled"),
        (CancelReason.DEADLINE, "early end"),
        (CancelReason.STALL, "early end"),
        (CancelReason.DRAIN, "early end"),
    ],
)
def test_only_a_client_cancels(reason: CancelReason, label: str):
    """What the worker ended early is called so, with the reason beside it."""
    told = tale(Outcome.CANCELLED, cancel_reason=reason, cancelled_s=102.0)
    (row,) = [line for line in _lines(life(told)) if "✕" in line]
    assert row.startswith(f"{label} ")
    assert row.endswith(f" {reason}")


def test_a_request_that_goes_on_elsewhere_says_so():
    """Who looks at its first life only must not take it for lost; with the next one it is no news."""
    said = "a frontend can continue it"
    assert any(said in line for line in _lines(life(moved())))
    assert not any(said in line for line in _lines(life(moved()), life(continued(), "two", 2.75)))


def test_the_ids_that_a_client_has_are_shown():
    """The caller's own header beside the context's id; and how much was asked for."""
    told = tale(trace_headers={"x-request-id": "gateway-1"}, max_tokens=16)
    lines = "\n".join(_lines(life(told), width=120))
    assert "context ctx-7, x-request-id gateway-1" in lines
    assert "9 out of at most 16," in lines


def test_a_refusal_says_which_field_was_wrong():
    """By its name; what was in it is the caller's."""
    told = tale(
        Outcome.REFUSED,
        Phase.RESOLVING,
        error_kind="InvalidRequest",
        reject_reason=RejectReason.INVALID_REQUEST,
        refused_field="sampling_options.n",
    )
    lines = _lines(life(told))
    assert lines[0].startswith("request 7  refused (invalid_request) in resolving")
    assert lines[-1] == "because InvalidRequest: sampling_options.n"


def test_a_request_that_ended_early_says_where_and_why():
    """The outcome, its reason and the phase stand in the headline, the engine's own words at the end."""
    failed = tale(Outcome.FAILED, Phase.PREFILL, error_kind="GenerationFailed", error_text="a mask failed")
    lines = _lines(life(structs.replace(failed, failure_cause="engine")))
    assert lines[0] == "request 7  failed (engine) in prefill  2500.000 ms"
    assert lines[-1] == "because GenerationFailed: a mask failed"
    assert not any(line.startswith("stream") for line in lines)


def test_a_beginning_that_nobody_told_of():
    """The life before was on a worker that was not asked."""
    lines = _lines(life(continued()), width=90)
    assert "it began on another worker, which was not asked or has forgotten it" in lines


def test_clocks_that_contradict_each_other():
    """Nothing is drawn before its time, and it is said that the gap is not known."""
    lines = _lines(life(moved(), "one", 10.0), life(continued(), "two", 11.0))
    assert "clocks differ by 1500.000 ms or more, so the gap is not known" in lines
    assert not any(line.startswith("gap") for line in lines)


def test_a_terminal_without_blocks_and_arrows():
    """ASCII stands for them; figures and words are the same."""
    told = (life(moved(), "one"), life(continued(), "two", 2.75))
    plain, pretty = _lines(*told, encoding="ascii"), _lines(*told)
    assert "\n".join(plain).isascii()
    table = str.maketrans("█·░◆│✕", "#.~*|x")
    assert [line.translate(table) for line in pretty] == plain


def test_no_control_character_reaches_the_terminal():
    """A worker that says them is another one than ours, or reached by somebody else's port."""
    hostile = life(tale(Outcome.FAILED, error_text=f"\x1b]0;owned\x07{HOSTILE}\n"), context_id="\x9b2J\u2028")
    for line in _lines(hostile):
        assert line.isprintable()
    assert any("\\x1b]0;owned" in line for line in _lines(hostile))


@given(
    st.lists(lives(st.just("one")), min_size=1, max_size=4),
    st.integers(0, 200),
    st.sampled_from(["utf-8", "ascii", "latin-1", "cp437"]),
)
def test_no_line_is_too_wide_whatever_was_told(told: list[Life], width: int, encoding: str):
    """Nor has it anything that the terminal obeys or cannot write. Below 48 columns it stays at 48."""
    for journey in journeys_of(told):
        for line in render_journey(journey, width, encoding):
            assert cell_len(line.plain) <= max(width, 48)
            assert line.plain.isprintable()
            assert line.plain.encode(encoding).decode(encoding) == line.plain


@given(st.lists(st.floats(0, 1e5), min_size=6, max_size=6).map(sorted), st.integers(48, 200))
def test_bars_cover_the_request_without_gaps(times: list[float], width: int):
    """Each bar has at least one cell and begins where the one before it ended; the last ends at the edge.

    Of the hops that is so, and of the executor's two parts, which are as long as their hop.
    """
    names = ("arrived_s", "admitted_s", "resolved_s", "submitted_s", "first_token_s", "ended_s")
    told = story_as_dict(structs.replace(tale(), **dict(zip(names, times, strict=True))))
    bars = [line for line in render_story(convert(told, Story), width) if "█" in line]
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
