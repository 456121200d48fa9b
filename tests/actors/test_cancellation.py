"""Promises of the monitor: each request ends for its reason, by a written rule for its phase, once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from actors.cancellation import SWEEP_S, CancellationMonitor
from actors.settings import GraphSettings
from protocols.errors import DeadlineExceeded, EngineShutdown, InternalError, ReaderStalled
from protocols.messages import Cancel, CancelContext, EndLive, ReaderGone
from protocols.steps import Delta, EngineId, FinishReason
from protocols.telemetry import CancelReason, Outcome, Phase
from tests.actors.office import Office, closed_lane
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
        assert [told.engine_id for told in desk.told()] == ([ticket.engine_id] if phase in AT_EXECUTOR else [])

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
        assert type(ticket.outbox.terminal.error) is error
        assert ticket.outbox.terminal.finish_reason is None

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
        assert ticket.outbox.terminal.finish_reason is FinishReason.CANCELLED
        assert ticket.outbox.terminal.prompt_tokens == 4

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
        fixed.is_movable = False
        desk.monitor.on_control(EndLive(only_movable=True))
        assert (movable.outcome, fixed.outcome) == (Outcome.INTERRUPTED, None)
        desk.monitor.on_control(EndLive(only_movable=False))
        assert fixed.outcome is Outcome.INTERRUPTED


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
        assert "5 s" in str(ticket.outbox.terminal.error)

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

    def test_the_deadline_wins_over_the_stall(self, desk: Desk) -> None:
        """When both have passed, the caller's own limit is the reason."""
        ticket = desk.open()
        ticket.deadline_s = 130.0
        ticket.outbox.put(Delta(ticket.engine_id, [1]), 100.0)
        desk.office.now_s = 130.0
        desk.monitor.on_sweep()
        assert ticket.cancel_reason is CancelReason.DEADLINE


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


def test_the_sweep_is_quick_enough_for_a_deadline() -> None:
    """A deadline is noticed within a tenth of a second (docs name this figure)."""
    assert SWEEP_S == 0.1
