"""Promises of the monitor: each request ends for its reason, by a written rule for its phase, once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.cancellation import SWEEP_S, CancellationMonitor
from actors.outbox import Terminal
from actors.settings import GraphSettings
from protocols.bounds import Bound
from protocols.errors import DeadlineExceeded, EngineShutdown, InternalError, ReaderStalled
from protocols.messages import Cancel, CancelContext, EndLive, ReaderGone
from protocols.steps import Delta, EngineId, FinishReason
from protocols.telemetry import CancelReason, Outcome, Phase
from tests.actors.office import Office, closed_lane, last_word
from tests.doubles.callers import FakeCaller

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors.ticket import Ticket

AT_EXECUTOR = (Phase.WAITING, Phase.PREFILL, Phase.DECODE)


class Desk:
    """A monitor whose handlers are called by hand, and what it tells the executor."""

    def __init__(self, lane: int = 100) -> None:
        self.office = Office()
        self.to_executor, self._inbox = anyio.create_memory_object_stream[Any](lane)
        self.monitor = CancellationMonitor(
            closed_lane()[1],
            self.to_executor,
            self.office.ledger,
            GraphSettings(stall_timeout_s=30.0),
            self.office.clock,
            self.office.listener,
        )

    def close(self) -> None:
        self.to_executor.close()
        self._inbox.close()

    def told(self) -> list[Cancel]:
        messages = []
        while self._inbox.statistics().current_buffer_used:
            messages.append(self._inbox.receive_nowait())
        return messages

    def open(self, phase: Phase = Phase.DECODE, context_id: str | None = None) -> Ticket:
        ticket = self.office.open(FakeCaller(context_id), phase)
        ticket.prompt_tokens = 4
        ticket.outbox.bound_tokens = 100
        return ticket


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.close()


class TestPhases:
    @pytest.mark.parametrize("phase", [Phase.RESOLVING, *AT_EXECUTOR])
    @pytest.mark.parametrize("reason", list(CancelReason))
    def test_the_rule_of_each_phase(self, desk: Desk, phase: Phase, reason: CancelReason) -> None:
        """It ends here in every phase; the executor hears of it once it may have it."""
        ticket = desk.open(phase)
        ticket.budget_s = 5.0
        desk.monitor.end_early(ticket, reason)
        assert ticket.is_ended
        assert ticket.cancel_reason is reason
        assert desk.office.listener.cancellations == {(reason, phase): 1}
        assert [told.engine_id for told in desk.told()] == (
            [ticket.engine_id] if phase in AT_EXECUTOR else []
        )

    def test_a_finished_request_is_left_alone(self, desk: Desk) -> None:
        """Its outcome stays, nobody is told, nothing is counted (S02 b)."""
        ticket = desk.open()
        desk.monitor.end_early(ticket, CancelReason.DRAIN)
        desk.told()
        desk.monitor.end_early(ticket, CancelReason.CLIENT)
        desk.monitor.on_control(ReaderGone(ticket.engine_id))
        assert ticket.cancel_reason is CancelReason.DRAIN
        assert desk.office.listener.cancellations == {(CancelReason.DRAIN, Phase.DECODE): 1}
        assert desk.told() == []

    @pytest.mark.parametrize(
        ("reason", "outcome", "error"),
        [
            (CancelReason.DEADLINE, Outcome.DEADLINE, DeadlineExceeded),
            (CancelReason.STALL, Outcome.STALLED, ReaderStalled),
            (CancelReason.DRAIN, Outcome.INTERRUPTED, EngineShutdown),
            (CancelReason.ENGINE_DEAD, Outcome.FAILED, EngineShutdown),
        ],
    )
    def test_every_reason_has_its_own_outcome_and_error(
        self, desk: Desk, reason: CancelReason, outcome: Outcome, error: type[Exception]
    ) -> None:
        """Never 'stop', never 'cancelled', never a bare error (S04)."""
        ticket = desk.open()
        ticket.budget_s = 5.0
        desk.monitor.end_early(ticket, reason)
        assert ticket.outcome is outcome
        assert type(last_word(ticket).error) is error
        assert last_word(ticket).finish_reason is None

    def test_tokens_owed_at_an_early_end_are_still_delivered_unless_the_reader_left(self, desk: Desk) -> None:
        """Only the one who went away is not charged for them."""
        for reason, left in ((CancelReason.DEADLINE, 2), (CancelReason.DRAIN, 2), (CancelReason.CLIENT, 0)):
            ticket = desk.open()
            ticket.outbox.put(Delta(ticket.engine_id, [1, 2]), 0.0)
            desk.monitor.end_early(ticket, reason)
            assert ticket.outbox.waiting_tokens == left


class TestClient:
    def test_a_leaving_client_is_cancelled_with_what_it_took(self, desk: Desk) -> None:
        """Outcome and finish reason say so (S01)."""
        ticket = desk.open()
        desk.monitor.on_control(ReaderGone(ticket.engine_id))
        assert ticket.outcome is Outcome.CANCELLED
        assert last_word(ticket).finish_reason is FinishReason.CANCELLED
        assert last_word(ticket).prompt_tokens == 4

    @pytest.mark.parametrize(
        ("has_stops", "taken", "outcome"),
        [
            (True, 1, Outcome.STOPPED_BY_FRONTEND),
            (True, 0, Outcome.CANCELLED),
            (False, 1, Outcome.CANCELLED),
        ],
    )
    def test_a_frontend_that_met_its_stop_string_is_no_leaving_client(
        self, desk: Desk, has_stops: bool, taken: int, outcome: Outcome
    ) -> None:
        """With stop strings and something delivered, it was the frontend."""
        ticket = desk.open()
        ticket.has_stop_strings = has_stops
        ticket.outbox.taken_tokens = taken
        desk.monitor.on_control(ReaderGone(ticket.engine_id))
        assert ticket.outcome is outcome

    def test_of_two_namesakes_only_the_one_that_left_ends(self, desk: Desk) -> None:
        """Context ids may repeat: the caller's own context decides (S02 d)."""
        stays, leaves = desk.open(context_id="same"), desk.open(context_id="same")
        leaves.caller.leave()  # type: ignore[attr-defined]
        desk.monitor.on_control(CancelContext("same"))
        assert (stays.outcome, leaves.outcome) == (None, Outcome.CANCELLED)

    def test_strangers_are_no_ops(self, desk: Desk) -> None:
        """Unknown contexts and ids: nothing happens."""
        desk.monitor.on_control(CancelContext("nobody"))
        desk.monitor.on_control(ReaderGone(EngineId(999)))
        assert desk.told() == []
        assert desk.office.listener.cancellations == {}


class TestDrain:
    def test_the_movable_first_then_everybody(self, desk: Desk) -> None:
        """What a frontend cannot continue elsewhere is spared the first time."""
        movable, fixed = desk.open(), desk.open()
        movable.is_movable = True
        desk.monitor.on_control(EndLive(fixed.engine_id, only_movable=True))
        assert (movable.outcome, fixed.outcome) == (Outcome.INTERRUPTED, None)
        desk.monitor.on_control(EndLive(fixed.engine_id, only_movable=False))
        assert fixed.outcome is Outcome.INTERRUPTED

    def test_nobody_who_came_after_it(self, desk: Desk) -> None:
        """A message of a drain that is over harms no request of the worker that serves again."""
        before = desk.open()
        after = desk.open()
        desk.monitor.on_control(EndLive(before.engine_id, only_movable=False))
        assert (before.outcome, after.outcome) == (Outcome.INTERRUPTED, None)


class TestSweep:
    def test_a_deadline_holds_to_the_instant(self, desk: Desk) -> None:
        """Not before it, and at it."""
        ticket = desk.open(Phase.WAITING)
        ticket.budget_s, ticket.deadline_s = 5.0, 105.0
        desk.office.now_s = 104.999
        desk.monitor.on_sweep()
        assert not ticket.is_ended
        desk.office.now_s = 105.0
        desk.monitor.on_sweep()
        assert ticket.outcome is Outcome.DEADLINE
        assert "5 s" in str(last_word(ticket).error)

    def test_a_stalled_reader_ends_for_that_reason(self, desk: Desk) -> None:
        """Measured from the first token it left lying; its neighbour that reads goes on."""
        stalled, reading = desk.open(), desk.open()
        stalled.outbox.put(Delta(stalled.engine_id, [1]), 100.0)
        desk.office.now_s = 129.999
        desk.monitor.on_sweep()
        assert not stalled.is_ended
        desk.office.now_s = 130.0
        desk.monitor.on_sweep()
        assert (stalled.outcome, reading.outcome) == (Outcome.STALLED, None)

    def test_a_stalled_reader_is_given_up_with_its_request(self, desk: Desk) -> None:
        """It has had its time: what it left is dropped and its memory is free at once."""
        ticket = desk.open()
        desk.office.ledger.admit(ticket, 100)
        ticket.outbox.put(Delta(ticket.engine_id, [1]), 100.0)
        desk.office.now_s = 130.0
        desk.monitor.on_sweep()
        assert ticket.outcome is Outcome.STALLED
        assert_given_up(desk, ticket)
        assert desk.office.listener.bounds[Bound.UNREAD_ANSWERS] == 0

    def test_an_answer_that_nobody_reads_is_dropped_after_its_end(self, desk: Desk) -> None:
        """From when its reader took something last; counted; the outcome stays."""
        ticket = desk.open()
        desk.office.ledger.admit(ticket, 100)
        ticket.outbox.put(Delta(ticket.engine_id, [1]), 100.0)
        desk.office.now_s = 110.0
        desk.office.ledger.end(ticket, Outcome.COMPLETED, Terminal(finish_reason=FinishReason.STOP))
        desk.office.now_s = 129.999
        desk.monitor.on_sweep()
        assert ticket.reserved_tokens == 100
        desk.office.now_s = 130.0
        desk.monitor.on_sweep()
        desk.monitor.on_sweep()
        assert ticket.outcome is Outcome.COMPLETED
        assert_given_up(desk, ticket)
        assert desk.office.listener.bounds[Bound.UNREAD_ANSWERS] == 1

    @pytest.mark.parametrize("is_drained", [True, False])
    def test_a_reader_that_is_gone_or_done_is_forgotten_without_a_word(
        self, desk: Desk, is_drained: bool
    ) -> None:
        """The framework may never say that it dropped a generator: the sweep ends, no bound was reached."""
        ticket = desk.open()
        desk.office.ledger.end(ticket, Outcome.COMPLETED, Terminal(finish_reason=FinishReason.STOP))
        ticket.outbox.is_drained = is_drained
        if not is_drained:
            ticket.caller.leave()  # type: ignore[attr-defined]
        desk.office.now_s = 130.0
        desk.monitor.on_sweep()
        assert desk.office.ledger.is_read
        assert desk.office.listener.bounds[Bound.UNREAD_ANSWERS] == 0

    def test_the_deadline_wins_over_the_stall(self, desk: Desk) -> None:
        """When both have passed, the caller's own limit is the reason."""
        ticket = desk.open()
        ticket.deadline_s = 130.0
        ticket.outbox.put(Delta(ticket.engine_id, [1]), 100.0)
        desk.office.now_s = 130.0
        desk.monitor.on_sweep()
        assert ticket.cancel_reason is CancelReason.DEADLINE


def assert_given_up(desk: Desk, ticket: Ticket) -> None:
    """Nothing is kept for its reader, and what it finds when it comes back is its own error."""
    assert ticket.outbox.is_abandoned
    assert ticket.outbox.waiting_tokens == desk.office.ledger.reserved_tokens == 0
    assert type(last_word(ticket).error) is ReaderStalled
    assert desk.office.ledger.is_read


class TestLane:
    def test_a_full_control_lane_is_a_bug_and_says_so(self) -> None:
        """It is sized so that it cannot be; a lost cancel would be a lost slot."""
        desk = Desk(lane=0)
        with pytest.raises(InternalError, match="control lane"):
            desk.monitor.end_early(desk.open(), CancelReason.CLIENT)
        desk.close()

    def test_a_dead_executor_is_not_missed(self, desk: Desk) -> None:
        """The graph is closing: the request ends all the same."""
        desk._inbox.close()
        ticket = desk.open()
        desk.monitor.end_early(ticket, CancelReason.CLIENT)
        assert ticket.is_ended


Wishes = st.one_of(
    st.tuples(st.just("leave"), st.integers(0, 5)),
    st.tuples(st.just("leave unheard"), st.integers(0, 5)),
    st.tuples(st.just("reader gone"), st.integers(0, 6)),
    st.tuples(st.just("token"), st.integers(0, 5)),
    st.tuples(st.just("wait"), st.integers(0, 40)),
    st.tuples(st.just("end live"), st.integers(0, 1)),
)
PHASES = (Phase.RESOLVING, *AT_EXECUTOR)


@given(phases=st.lists(st.sampled_from(PHASES), min_size=1, max_size=6), wishes=st.lists(Wishes, max_size=30))
def test_any_wishes_end_each_request_at_most_once_and_abort_it_at_most_once(
    phases: list[Phase], wishes: list[tuple[str, int]]
) -> None:
    """The first reason wins; whoever had a reason to end has ended; the executor hears of each once."""
    desk = Desk()
    tickets = [desk.open(phase, f"context {place % 3}") for place, phase in enumerate(phases)]
    for place, ticket in enumerate(tickets):
        ticket.is_movable = place % 2 == 0
        ticket.budget_s, ticket.deadline_s = 60.0, 160.0
    for wish, number in wishes:
        act(desk, tickets, wish, number)
        desk.monitor.on_sweep()
        for ticket in tickets:
            is_due = ticket.deadline_s is not None and desk.office.now_s >= ticket.deadline_s
            assert ticket.is_ended or not is_due
    told = [cancel.engine_id for cancel in desk.told()]
    ended = [ticket for ticket in tickets if ticket.is_ended]
    expected = [
        t.engine_id for t, phase in zip(tickets, phases, strict=True) if t.is_ended and phase in AT_EXECUTOR
    ]
    assert sorted(told) == expected
    assert sum(desk.office.listener.cancellations.values()) == len(ended) == len(desk.office.listener.stories)
    desk.close()


def act(desk: Desk, tickets: list[Ticket], wish: str, number: int) -> None:
    """One wish; who is meant is counted around the tickets."""
    ticket = tickets[number % len(tickets)]
    before = [each.cancel_reason for each in tickets]
    match wish:
        case "leave" | "leave unheard":
            ticket.caller.leave()  # type: ignore[attr-defined]
            if wish == "leave":
                desk.monitor.on_control(CancelContext(ticket.caller.context_id))
                assert ticket.is_ended
        case "reader gone":
            desk.monitor.on_control(ReaderGone(EngineId(number + 1)))
        case "token":
            ticket.outbox.put(Delta(ticket.engine_id, [1]), desk.office.now_s)
        case "wait":
            desk.office.now_s += number
        case "end live":
            desk.monitor.on_control(EndLive(EngineId(len(tickets)), only_movable=bool(number)))
    for reason, each in zip(before, tickets, strict=True):
        assert reason is None or each.cancel_reason is reason


def test_the_sweep_is_quick_enough_for_a_deadline() -> None:
    """A deadline is noticed within a tenth of a second (docs name this figure)."""
    assert SWEEP_S == 0.1
