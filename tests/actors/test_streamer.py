"""Promises of the streamer: every request of a step gets its own, and those that ended their last word."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from actors.streamer import MOST_PREEMPTIONS, ChunkStreamer
from protocols.errors import GenerationFailed
from protocols.steps import Delta, EngineId, EngineStep, FinishReason
from protocols.telemetry import Outcome, Pace, Phase
from tests.actors.office import Office, closed_lane
from tests.doubles.callers import Reader
from tests.doubles.scheduling import run_seeded

if TYPE_CHECKING:
    from actors.ticket import Ticket

STEP_ENDED_S = 103.0


class Desk:
    """A streamer whose handler is called by hand."""

    def __init__(self) -> None:
        self.office = Office()
        self.streamer = ChunkStreamer(closed_lane()[1], self.office.ledger, self.office.listener)

    def open(self) -> Ticket:
        ticket = self.office.open(phase=Phase.DECODE)
        ticket.prompt_tokens = 4
        ticket.outbox.bound_tokens = 100
        return ticket

    def step(self, *deltas: Delta) -> None:
        self.streamer.on_step(EngineStep(list(deltas), 100.0, STEP_ENDED_S))


def read(ticket: Ticket) -> Reader:
    """Everything up to the last word."""
    reader = Reader(ticket.outbox)
    run_seeded(reader.read_to_end)
    return reader


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_each_request_of_a_step_gets_its_own(desk: Desk) -> None:
    """One message, many readers, no crosstalk."""
    one, other = desk.open(), desk.open()
    desk.step(Delta(one.engine_id, [1]), Delta(other.engine_id, [2, 3]))
    desk.step(
        Delta(other.engine_id, [4], finish_reason=FinishReason.EOS, is_last=True),
        Delta(one.engine_id, [5], finish_reason=FinishReason.LENGTH, is_last=True),
    )
    assert (read(one).tokens, read(other).tokens) == ([1, 5], [2, 3, 4])


@pytest.mark.parametrize("reason", [FinishReason.STOP, FinishReason.EOS, FinishReason.LENGTH])
def test_the_last_word_has_reason_and_exact_usage(desk: Desk, reason: FinishReason) -> None:
    """As the engine said it, in the chunk of the last tokens."""
    ticket = desk.open()
    desk.step(Delta(ticket.engine_id, [1], cached_tokens=3))
    desk.step(Delta(ticket.engine_id, [2, 3], finish_reason=reason, is_last=True, stop_reason=7))
    answer = read(ticket)
    assert answer.finish_reasons == [reason.value]
    assert answer.chunks[-1]["stop_reason"] == 7
    assert answer.chunks[-1]["completion_usage"] == {
        "prompt_tokens": 4,
        "completion_tokens": 3,
        "total_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 3},
    }
    assert ticket.outcome is Outcome.COMPLETED


def test_cached_tokens_count_without_tokens_too(desk: Desk) -> None:
    """A first delta may say what was found in the cache before it says a token."""
    ticket = desk.open()
    desk.step(Delta(ticket.engine_id, [], cached_tokens=3))
    desk.step(Delta(ticket.engine_id, [1], finish_reason=FinishReason.EOS, is_last=True))
    assert read(ticket).chunks[-1]["completion_usage"]["prompt_tokens_details"] == {"cached_tokens": 3}


def test_an_earlier_choice_ends_without_a_reason_on_the_wire(desk: Desk) -> None:
    """The framework ends at the first reason of any index; usage sums all choices (S11)."""
    ticket = desk.open()
    desk.step(
        Delta(ticket.engine_id, [1, 2], 1, FinishReason.STOP),
        Delta(ticket.engine_id, [3, 4, 5, 6, 7], 0),
    )
    desk.step(Delta(ticket.engine_id, [8], 0, FinishReason.LENGTH, is_last=True))
    answer = read(ticket)
    assert (answer.tokens_of(0), answer.tokens_of(1)) == ([3, 4, 5, 6, 7, 8], [1, 2])
    assert answer.finish_reasons == ["length"]
    assert answer.chunks[-1]["completion_usage"]["completion_tokens"] == 8


def test_the_first_token_is_stamped_by_its_step(desk: Desk) -> None:
    """Once, and only by a delta that has tokens."""
    ticket = desk.open()
    desk.step(Delta(ticket.engine_id, []))
    assert ticket.times.first_token_s is None
    desk.step(Delta(ticket.engine_id, [1]))
    assert ticket.times.first_token_s == STEP_ENDED_S


def test_a_request_that_failed_keeps_its_tokens(desk: Desk) -> None:
    """What was produced is delivered, then the typed error with the engine's stable text."""
    ticket = desk.open()
    desk.step(Delta(ticket.engine_id, [1]))
    desk.step(Delta(ticket.engine_id, [], is_last=True, error="out of memory for this request"))
    answer = read(ticket)
    assert answer.tokens == [1]
    assert isinstance(answer.error, GenerationFailed)
    assert str(answer.error) == "out of memory for this request"
    assert ticket.outcome is Outcome.FAILED


def test_an_engine_that_cancels_by_itself_has_failed(desk: Desk) -> None:
    """Nobody asked for it, so it is no 'cancelled' that a client would read as 'stop'."""
    ticket = desk.open()
    desk.step(Delta(ticket.engine_id, [], finish_reason=FinishReason.CANCELLED, is_last=True))
    assert isinstance(read(ticket).error, GenerationFailed)


def test_what_is_said_about_the_ended_is_nobodys(desk: Desk) -> None:
    """Tokens after the outcome are neither delivered nor counted."""
    ticket = desk.open()
    desk.step(Delta(ticket.engine_id, [1], finish_reason=FinishReason.EOS, is_last=True))
    desk.step(Delta(ticket.engine_id, [2], finish_reason=FinishReason.EOS, is_last=True))
    desk.step(Delta(EngineId(999), [3]))
    assert read(ticket).tokens == [1]
    assert (desk.office.listener.steps, desk.office.listener.tokens) == (3, 1)


def test_marks_and_preemptions_are_the_requests_own(desk: Desk) -> None:
    """Whose tokens came when, and who had to give its memory to another, is written on that ticket only."""
    one, other = desk.open(), desk.open()
    desk.step(Delta(one.engine_id, [1, 2]))
    assert one.pacing.pace() == Pace((STEP_ENDED_S,), (2,), (0.0,))
    assert other.pacing.pace() == Pace()
    for _ in range(MOST_PREEMPTIONS + 1):
        desk.streamer.on_step(EngineStep([], 101.0, 102.0, preempted=(other.engine_id, EngineId(999))))
    assert (one.preemptions, other.preemptions) == (0, MOST_PREEMPTIONS + 1)
    assert other.preempted_s == [101.0] * MOST_PREEMPTIONS
