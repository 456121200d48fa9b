"""Lives are joined when they are one request's, and only then; the order of answers changes nothing."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.telemetry import Outcome
from protocols.trace_link import TraceLink
from service.inspection.journeys import Life, journeys_of
from tests.service.inspection.fleet import continued, life, moved
from tests.service.inspection.strategies import lives
from tests.service.telemetry.tales import PARENT_ID, SAMPLED, tale

if TYPE_CHECKING:
    from protocols.telemetry import RequestStory

# Few names, so that lives meet.
_MEETING = st.sampled_from(["here", "there"])


def _ids(told: list[Life]) -> list[list[int]]:
    """The engine ids of each request's lives."""
    return [[life.story.engine_id for life in journey.lives] for journey in journeys_of(told)]


def _orphan(story: RequestStory) -> RequestStory:
    """The same from a frontend that does not trace."""
    changes = {name: getattr(story, name) for name in story.__struct_fields__}
    return type(story)(**{**changes, "trace_headers": None, "predecessor": None})


@given(st.lists(lives(_MEETING), max_size=7), st.randoms(use_true_random=False))
def test_the_order_of_answers_changes_nothing(told: list[Life], chance: random.Random):
    """Whichever worker was quicker."""
    shuffled = list(told)
    chance.shuffle(shuffled)
    assert journeys_of(shuffled) == journeys_of(told)


@given(st.lists(lives(_MEETING), max_size=7))
def test_every_life_is_told_once(told: list[Life]):
    """In one request, with those of the same context only."""
    journeys = journeys_of(told)
    keys = [life.key for journey in journeys for life in journey.lives]
    contexts = {(life.story.context_id, *life.key) for journey in journeys for life in journey.lives}
    assert len(keys) == len(contexts)
    assert contexts == {(life.story.context_id, *life.key) for life in told}
    assert all(len({life.story.context_id for life in journey.lives}) == 1 for journey in journeys)


@given(st.lists(lives(_MEETING), max_size=7))
def test_no_life_begins_before_the_one_before_it_ended(told: list[Life]):
    """Whatever their clocks say: then there is no gap, and they are said to differ."""
    for journey in journeys_of(told):
        assert journey.first.start_ms == 0.0
        for before, after in itertools.pairwise(journey.lives):
            assert after.start_ms >= before.end_ms - 0.001
            assert (after.gap_ms is None) is (after.overlap_ms > 0)
            assert after.gap_ms is None or after.gap_ms >= 0


def test_a_moved_request_is_one():
    """The later life says that it continued something; the gap is what lies between their wall clocks."""
    (journey,) = journeys_of([life(continued(), "two", 2.75), life(moved(), "one", 0.0)])
    assert [each.worker.instance_id for each in journey.lives] == ["one", "two"]
    assert [(each.start_ms, each.gap_ms) for each in journey.lives] == [(0.0, None), (2750.0, 250.0)]
    assert (journey.duration_ms, journey.ttft_ms, journey.completion_tokens) == (5250.0, 500.0, 18)
    assert not journey.is_incomplete


def test_a_frontend_that_does_not_trace_moves_requests_too():
    """Then an earlier life that was left open is word enough."""
    told = [life(_orphan(moved()), "one", 0.0), life(_orphan(continued()), "two", 2.75)]
    assert _ids(told) == [[40, 3]]


@pytest.mark.parametrize("seconds", [-61.0, 61.0, 9 * 3600.0])
def test_an_id_that_is_used_again_is_another_request(seconds: float):
    """A frontend goes on at once: what arrives a minute after the end, or before it, continues nothing."""
    cut, again = _orphan(moved(ended_s=400.5)), _orphan(continued())
    assert _ids([life(cut, "one", 0.0), life(again, "two", 300.0 + seconds)]) == [[40], [3]]
    near = seconds / abs(seconds) * 59.0
    assert _ids([life(cut, "one", 0.0), life(again, "two", 300.0 + near)]) == [[40, 3]]


def test_a_life_that_says_what_it_continues_may_come_late():
    """Its own word counts, however long the lives between the two were, which nobody told of."""
    assert _ids([life(moved(), "one", 0.0), life(continued(), "two", 9 * 3600.0)]) == [[40, 3]]


@pytest.mark.parametrize(
    "cut",
    [
        moved(is_moved=False, n=2),
        moved(is_moved=False),
        tale(Outcome.REFUSED, engine_id=40, context_id="moved", error_kind="EngineShutdown", n=2),
    ],
    ids=["several choices", "a grammar", "several choices at a closed door"],
)
def test_what_no_frontend_continues_is_not_waited_for(cut: RequestStory):
    """Whatever comes under its id is a request of its own, and no other worker knows more of it."""
    told = [life(_orphan(cut), "one", 0.0), life(_orphan(continued()), "two", 2.75)]
    assert _ids(told) == [[40], [3]]
    assert not any(journey.is_incomplete for journey in journeys_of(told))


def test_two_requests_of_one_context_stay_two():
    """A client may use an id again, and what was served to its end is not continued."""
    assert _ids([life(tale(engine_id=1), "one", 0.0), life(tale(engine_id=2), "two", 5.0)]) == [[1], [2]]
    served = tale(engine_id=1, context_id="moved", trace_headers=SAMPLED)
    assert _ids([life(served, "one", 0.0), life(continued(), "two", 5.0)]) == [[1], [3]]


def test_a_life_of_another_trace_is_not_the_one_before():
    """Which trace that was, the later life knows."""
    other = continued(predecessor=TraceLink("f" * 32, PARENT_ID))
    journeys = journeys_of([life(moved(), "one", 0.0), life(other, "two", 2.75)])
    assert [len(journey.lives) for journey in journeys] == [1, 1]
    assert journeys[1].is_beginning_missing
    assert all(journey.is_incomplete for journey in journeys)


def test_a_request_can_be_moved_twice():
    """Each life follows the one that ended when it arrived."""
    link = TraceLink("0123456789abcdef0123456789abcdef", PARENT_ID)
    told = [
        life(moved(), "one", 0.0),
        life(moved(engine_id=41, predecessor=link), "two", 2.75),
        life(continued(), "three", 5.5),
    ]
    assert all(_ids(list(order)) == [[40, 41, 3]] for order in itertools.permutations(told))


def test_a_later_life_whose_clock_is_behind():
    """It says itself that it continued: by that it is known, and placed at the end of the one before it."""
    (journey,) = journeys_of([life(moved(), "one", 10.0), life(continued(), "two", 9.0)])
    assert [each.story.engine_id for each in journey.lives] == [40, 3]
    after = journey.last
    assert (after.start_ms, after.gap_ms, after.overlap_ms) == (2500.0, None, 3500.0)


def test_two_that_claim_to_continue_each_other_are_no_ring():
    """Clocks that lie, or a worker that does."""
    link = TraceLink("0123456789abcdef0123456789abcdef", PARENT_ID)
    told = [life(moved(engine_id=number, predecessor=link), "one", float(number)) for number in (1, 2, 3)]
    assert sorted(itertools.chain(*_ids(told))) == [1, 2, 3]


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.CANCELLED, Outcome.REFUSED])
def test_a_worker_that_died_or_refused_was_a_life_too(outcome: Outcome):
    """Its story, if it still tells one, says how its own part ended."""
    before = tale(outcome, engine_id=40, context_id="moved", trace_headers=SAMPLED)
    assert _ids([life(before, "one", 0.0), life(continued(), "two", 2.75)]) == [[40, 3]]


def test_a_worker_that_contradicts_itself_is_told_in_one_way():
    """Whichever of its two stories came first."""
    told = [life(tale(), error="it broke"), life(tale()), life(tale(), context_id="another")]
    assert all(journeys_of(list(each)) == journeys_of(told) for each in itertools.permutations(told))


def test_a_worker_that_is_asked_by_two_addresses_tells_once():
    """It says who it is."""
    one = life(tale(), "one")
    other = Life(type(one.worker)("http://elsewhere", one.worker.instance_id), one.story)
    assert len(journeys_of([one, other])) == 1
