"""Stories: bounded, those worth asking about kept longest, exact in JSON."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from protocols.bounds import Bound
from protocols.rejections import RejectReason
from protocols.steps import EngineTiming
from protocols.telemetry import Outcome, Phase
from protocols.trace_link import TraceLink
from service.telemetry.figures import figures_of
from service.telemetry.identifiers import shown_id
from service.telemetry.stories import (
    FAILED,
    LAST,
    MOST_TOLD,
    REFUSED,
    SLOW,
    TRACED,
    WINDOW_S,
    Kept,
    Stories,
    story_as_dict,
)
from tests.doubles.listeners import RecordingTelemetry
from tests.service.telemetry.tales import (
    PARENT_ID,
    SAMPLED,
    TRACE_ID,
    UNSAMPLED,
    outcome_of,
    pace_of,
    tale,
    tale_of_each,
    tale_of_refusal,
)

if TYPE_CHECKING:
    from protocols.telemetry import RequestStory


def _told(*stories: RequestStory) -> Stories:
    kept = Stories()
    for story in stories:
        kept.request_ended(story, figures_of(story))
    return kept


def _ids(stories: list[RequestStory]) -> list[int]:
    return [story.engine_id for story in stories]


def test_the_last_come_newest_first():
    """As many as were asked for."""
    kept = _told(*(tale(engine_id=number) for number in range(1, 6)))
    assert _ids(kept.select(Kept.LAST, limit=3)) == [5, 4, 3]


def test_a_failure_outlives_many_that_went_well():
    """It is what somebody will ask about."""
    kept = _told(tale(Outcome.FAILED, engine_id=1), *(tale(engine_id=number) for number in range(2, 5000)))
    assert _ids(kept.select(Kept.FAILED)) == [1]
    assert _ids(kept.find("1")) == [1]


def test_a_sampled_one_outlives_many_that_nobody_traced():
    """Whoever finds it in a tracing back-end finds its story here, by the trace's id, too."""
    rest = (tale(engine_id=number, trace_headers=UNSAMPLED) for number in range(2, 5000))
    kept = _told(tale(engine_id=1, trace_headers=SAMPLED), *rest)
    assert _ids(kept.find("1")) == [1]
    assert _ids(kept.find(TRACE_ID, limit=1000))[-1] == 1


def test_an_id_is_found_in_the_form_in_which_it_is_shown():
    """One that is not written as it came can be asked for with what stands in its place."""
    kept = _told(tale(context_id="a sentence, and\na line"))
    shown = story_as_dict(tale(context_id="a sentence, and\na line"))["context_id"]
    assert shown.startswith("sha256:")
    assert _ids(kept.find(shown)) == [7]


@pytest.mark.parametrize("prefix", ["", "chatcmpl-", "cmpl-"])
def test_the_id_of_an_answer_finds_its_request(prefix: str):
    """It is the context's with the kind of the answer before it: the one id that every client has."""
    kept = _told(tale(engine_id=1, context_id="16d731fb"), tale(engine_id=2, context_id="chatcmpl-16d731fb"))
    assert _ids(kept.find(f"{prefix}16d731fb"))[-1] == 1
    assert _ids(kept.find("chatcmpl-16d731fb")) == [2, 1]


def test_a_callers_own_id_finds_its_request():
    """As it came, or in the form in which it is shown."""
    kept = _told(
        tale(engine_id=1, trace_headers={"x-request-id": "gateway-1"}),
        tale(engine_id=2, trace_headers={"x-request-id": "a sentence, and\na line"}),
    )
    assert _ids(kept.find("gateway-1")) == [1]
    (story,) = kept.find("a sentence, and\na line")
    shown = story_as_dict(story)["x_request_id"]
    assert shown.startswith("sha256:")
    assert _ids(kept.find(shown)) == [2]


def test_a_wish_for_few_is_no_bound():
    """Whoever asks for four of many gets what he asked for."""
    told = RecordingTelemetry()
    kept = Stories(told.bound_reached)
    for number in range(MOST_TOLD + 1):
        story = tale(engine_id=number)
        kept.request_ended(story, figures_of(story))
    assert len(kept.select(Kept.LAST, limit=MOST_TOLD - 1)) == MOST_TOLD - 1
    assert told.bounds == {}
    kept.select(Kept.LAST, limit=MOST_TOLD)
    assert told.bounds == {Bound.TRACE_ANSWER: 1}


def test_refusals_push_nobody_out():
    """Whoever is refused asks again: the newest are told among the others, and take nobody's place."""
    served = [tale(engine_id=number, ended_s=101.0 + number / 64) for number in range(10)]
    refused = [
        tale_of_refusal(RejectReason.MAX_LIVE, engine_id=100 + number, ended_s=101.5 + number / 64)
        for number in range(5000)
    ]
    kept = _told(*served, *refused)
    assert _ids(kept.select(Kept.LAST))[:REFUSED] == list(range(5099, 5099 - REFUSED, -1))
    assert _ids(kept.select(Kept.LAST))[REFUSED:] == list(range(9, -1, -1))


def test_nobody_makes_a_story_large():
    """An id or a header of 60,000 characters is kept as its digest, and found by that."""
    long = "x" * 60_000
    kept = _told(tale(context_id=long, trace_headers={**SAMPLED, "x-request-id": long}))
    (story,) = kept.find(shown_id(long))
    assert kept.find(TRACE_ID) == [story]
    assert len(story.context_id) + sum(map(len, (story.trace_headers or {}).values())) < 300


def test_a_slow_one_outlives_many_fast_ones():
    """The slowest come first, each once."""
    slow = [tale(engine_id=number, ended_s=110.0 + number) for number in (1, 2)]
    kept = _told(*slow, *(tale(engine_id=number) for number in range(3, 5000)))
    assert _ids(kept.select(Kept.SLOWEST, limit=2)) == [2, 1]
    assert _ids(kept.find("1")) == [1]


def test_a_slow_start_does_not_stay_on_top_for_ever():
    """After two windows the slowest are those of today."""
    kept = Stories()
    for number, ended_s in enumerate((500.0, 501.0 + WINDOW_S, 502.0 + 2 * WINDOW_S, 503.0 + 2 * WINDOW_S)):
        story = tale(engine_id=number, arrived_s=ended_s - 100 + 10 * number, ended_s=ended_s)
        kept.request_ended(story, figures_of(story))
    assert _ids(kept.select(Kept.SLOWEST)) == [1, 2, 3]


def test_an_hour_of_silence_ends_both_windows():
    """Nothing old is called the slowest."""
    kept = _told(tale(engine_id=1, ended_s=200.0), tale(engine_id=2, arrived_s=9000.0, ended_s=9001.0))
    assert _ids(kept.select(Kept.SLOWEST)) == [2]


def test_the_keeper_is_bounded():
    """At most 352 stories, whatever happens."""
    kept = Stories()
    for number in range(3000):
        story = tale(
            Outcome.FAILED if number % 3 else Outcome.COMPLETED,
            engine_id=number,
            arrived_s=1.0,
            ended_s=2.0 + number * 7 % 1000 + number,
            trace_headers=None if number % 5 else SAMPLED,
        )
        kept.request_ended(story, figures_of(story))
    assert len(kept.find("ctx-7", limit=10_000)) <= LAST + FAILED + TRACED + REFUSED + 2 * SLOW == 352


def test_what_makes_room_and_what_is_left_out_is_counted():
    """Each story that goes, each answer that could not hold all that was asked for; nothing before that."""
    told = RecordingTelemetry()
    kept = Stories(told.bound_reached)
    for number in range(LAST):
        story = tale(engine_id=number)
        kept.request_ended(story, figures_of(story))
        if number == MOST_TOLD - 1:
            assert len(kept.select(Kept.LAST)) == MOST_TOLD
    assert told.bounds == {}
    assert len(kept.select(Kept.LAST)) == MOST_TOLD
    assert told.bounds == {Bound.TRACE_ANSWER: 1}
    for number in range(3):
        story = tale(engine_id=LAST + number)
        kept.request_ended(story, figures_of(story))
    assert told.bounds == {Bound.TRACE_ANSWER: 1, Bound.STORIES: 3}


def test_a_caller_may_have_had_several_requests():
    """All of them are found by the caller's id, newest first."""
    kept = _told(
        tale(engine_id=1, context_id="moved", ended_s=103.0),
        tale(engine_id=2, context_id="other", ended_s=104.0),
        tale(engine_id=3, context_id="moved", ended_s=105.0),
    )
    assert _ids(kept.find("moved")) == [3, 1]


def test_unknown_ids_find_nothing():
    """Neither do words that are none of ours."""
    assert _told(tale()).find("nobody") == []


def test_a_story_in_json():
    """Every figure, in milliseconds, from the arrival on."""
    told = story_as_dict(
        tale(
            trace_headers={**SAMPLED, "x-request-id": "gateway-1"},
            max_tokens=16,
            finish_reason="length",
            chunks=3,
            pace=pace_of((100.5, 1), (101.0, 3), (102.5, 9)),
            preemptions=2,
            preempted_s=(100.75, 102.0),
            cancelled_s=102.25,
            predecessor=TraceLink(TRACE_ID, PARENT_ID),
            engine_timing=EngineTiming(queued_s=0.125, prefill_s=0.25, decode_s=2.0),
        ),
        clock_began_s=1_000_000_000.0,
    )
    assert (
        json.loads(json.dumps(told))
        == told
        == {
            "engine_id": 7,
            "context_id": "ctx-7",
            "x_request_id": "gateway-1",
            "trace_id": TRACE_ID,
            "span_id": PARENT_ID,
            "arrived_at": "2001-09-09T01:48:20.000000Z",
            "outcome": "completed",
            "phase": "decode",
            "finish_reason": "length",
            "finish_reasons": ["length"],
            "cancel_reason": None,
            "error_kind": None,
            "error": None,
            "failure_cause": None,
            "reject_reason": None,
            "refused_field": None,
            "n": 1,
            "max_tokens": 16,
            "prompt_tokens": 12,
            "cached_tokens": 4,
            "completion_tokens": 9,
            "chunks": 3,
            "duration_ms": 2500.0,
            "queue_ms": 250.0,
            "ttft_ms": 500.0,
            "itl_mean_ms": 250.0,
            "itl_p50_ms": 250.0,
            "cancelled_ms": 2250.0,
            "engine": {"queued_ms": 125.0, "prefill_ms": 250.0, "decode_ms": 2000.0, "transfer_ms": None},
            "preemptions": 2,
            "preempted_ms": [750.0, 2000.0],
            "marks": [[500.0, 1], [1000.0, 3], [2500.0, 9]],
            "is_sampled": True,
            "is_moved": False,
            "predecessor": {"trace_id": TRACE_ID, "span_id": PARENT_ID},
            "hops": [
                {"name": "actor.intake", "start_ms": 0.0, "duration_ms": 62.5},
                {"name": "actor.resolve", "start_ms": 62.5, "duration_ms": 62.5},
                {
                    "name": "actor.execute",
                    "start_ms": 125.0,
                    "duration_ms": 375.0,
                    "waiting_ms": 125.0,
                    "prefill_ms": 250.0,
                },
                {"name": "actor.stream", "start_ms": 500.0, "duration_ms": 2000.0},
            ],
        }
    )


@pytest.mark.parametrize("story", tale_of_each(), ids=outcome_of)
def test_every_ending_can_be_told(story: RequestStory):
    """Hops touch each other and add up to the request, in JSON too."""
    told = story_as_dict(story)
    assert json.loads(json.dumps(told)) == told
    assert datetime.fromisoformat(told["arrived_at"]).utcoffset() is not None
    assert sum(hop["duration_ms"] for hop in told["hops"]) == told["duration_ms"]


def test_a_request_that_never_left_the_waiting_room():
    """All of its last hop was waiting; there was no prefill."""
    (hop,) = [
        hop for hop in story_as_dict(tale(Outcome.DEADLINE, Phase.WAITING))["hops"] if "waiting_ms" in hop
    ]
    assert (hop["waiting_ms"], hop["prefill_ms"]) == (2375.0, None)


def test_every_choice_has_its_reason_in_the_story():
    """A client that left in the middle: what had ended before keeps its own reason."""
    story = tale(Outcome.CANCELLED, n=2, finish_reason="cancelled", finish_reasons=("cancelled", "stop"))
    assert story_as_dict(story)["finish_reasons"] == ["cancelled", "stop"]
