"""Promises of the executor: capacity, one submit, one abort, and an engine that may say anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from actors.executor import Executor, ExecutorLanes, ExecutorLimits
from actors.outbox import Terminal
from actors.surroundings import Surroundings
from protocols.engine import EngineCapabilities
from protocols.errors import EngineDead, GenerationFailed, InternalError
from protocols.messages import Cancel, Flow, Resolved
from protocols.spec import GenerationSpec, StopRules
from protocols.steps import Delta, EngineId, EngineStep, FinishReason
from protocols.telemetry import AbortResult, CancelReason, Outcome, Phase
from tests.actors.office import Office, closed_lane, last_word
from tests.doubles.engines import VOCAB_SIZE, RaisesOnSubmit, ScriptedEngine

if TYPE_CHECKING:
    from actors.ticket import Ticket

pytestmark = pytest.mark.anyio


class Desk:
    """An executor whose handlers are called by hand, with an engine that says what it is told."""

    def __init__(self, engine: ScriptedEngine | None = None, capacity: int = 2) -> None:
        self.office = Office()
        self.engine = engine or ScriptedEngine()
        self.engine.starts = 1
        lanes = ExecutorLanes(closed_lane()[1], closed_lane()[1], closed_lane()[0])
        limits = ExecutorLimits(batch=capacity, capacity=capacity, vocab_size=VOCAB_SIZE, hang_timeout_s=30.0)
        office = self.office
        around = Surroundings(
            engine=self.engine, telemetry=office.listener, clock=office.clock, on_crash=lambda _: None
        )
        self.executor = Executor(lanes, limits, office.ledger, around)

    def bring(self, n: int = 1, max_tokens: int = 8, priority: float = 0.0) -> Ticket:
        """A resolved request arrives."""
        ticket = self.office.open(phase=Phase.WAITING)
        spec = GenerationSpec(prompt=(1,), stop=StopRules(max_tokens=max_tokens), n=n, priority=priority)
        self.executor.on_resolved(Resolved(ticket.engine_id, spec))
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        """What the monitor does: the outcome first, then the message."""
        terminal = Terminal(finish_reason=FinishReason.CANCELLED)
        self.office.ledger.end(ticket, Outcome.CANCELLED, terminal)
        self.executor.on_control(Cancel(ticket.engine_id, CancelReason.CLIENT))

    def step(self, *deltas: Delta) -> list[Delta]:
        """The engine makes a step; what the streamer sees of it."""
        return self.executor.on_step(EngineStep(list(deltas), 0.0, 0.0)).deltas

    def last(self, ticket: Ticket, reason: FinishReason = FinishReason.LENGTH) -> Delta:
        return Delta(ticket.engine_id, [], finish_reason=reason, is_last=True)


@pytest.fixture
def desk() -> Desk:
    return Desk()


class TestCapacity:
    async def test_it_submits_up_to_the_capacity_and_holds_the_rest(self, desk: Desk) -> None:
        """The engine never has more than it can run; the others wait in order."""
        tickets = [desk.bring() for _ in range(4)]
        assert desk.engine.ids_of("submit") == [1, 2]
        assert (desk.executor.running_sequences, desk.executor.waiting_requests) == (2, 2)
        desk.step(desk.last(tickets[0]))
        assert desk.engine.ids_of("submit") == [1, 2, 3]

    async def test_a_request_costs_its_choices(self, desk: Desk) -> None:
        """Capacity is counted in sequences."""
        wide = desk.bring(n=2)
        desk.bring()
        assert desk.executor.running_sequences == 2
        assert desk.engine.ids_of("submit") == [wide.engine_id]

    async def test_all_its_slots_are_free_with_its_end(self, desk: Desk) -> None:
        """As many as it cost."""
        desk.step(desk.last(desk.bring(n=2), FinishReason.CANCELLED))
        assert desk.executor.running_sequences == 0
        desk.bring(n=2)
        assert len(desk.engine.submitted) == 2

    async def test_a_slot_is_free_when_the_engine_says_so_and_not_before(self, desk: Desk) -> None:
        """An aborted request holds its place until its last delta."""
        first, _, third = desk.bring(), desk.bring(), desk.bring()
        desk.cancel(first)
        assert desk.executor.running_sequences == 2
        desk.step(desk.last(first, FinishReason.CANCELLED))
        assert desk.engine.ids_of("submit")[-1] == third.engine_id

    async def test_a_cancelled_giant_lets_those_behind_it_through_at_once(self) -> None:
        """Slots that were kept free for it are used when it leaves, not at the next step."""
        desk = Desk(capacity=4)
        desk.bring()
        giant = desk.bring(n=4)
        for _ in range(64):
            desk.step(desk.last(desk.bring()))
        held_back = desk.bring().engine_id
        assert held_back not in desk.engine.submitted
        desk.cancel(giant)
        assert list(desk.engine.live)[-1] == held_back
        assert desk.executor.running_sequences == 2

    async def test_priority_decides_who_is_next(self, desk: Desk) -> None:
        """Higher goes first when a slot gets free."""
        first, _ = desk.bring(), desk.bring()
        desk.bring()
        urgent = desk.bring(priority=1.0)
        desk.step(desk.last(first))
        assert desk.engine.ids_of("submit")[-1] == urgent.engine_id


class TestCancel:
    async def test_a_waiting_request_is_never_heard_of(self, desk: Desk) -> None:
        """It leaves the waiting room; the engine is not told."""
        desk.bring()
        desk.bring()
        waiting = desk.bring()
        desk.cancel(waiting)
        assert desk.executor.waiting_requests == 0
        assert waiting.engine_id not in desk.engine.submitted
        assert desk.engine.ids_of("abort") == []

    async def test_one_abort_however_many_cancels(self, desk: Desk) -> None:
        """The engine is asked once (S02 c)."""
        ticket = desk.bring()
        for _ in range(5):
            desk.cancel(ticket)
        assert desk.engine.ids_of("abort") == [ticket.engine_id]
        assert desk.office.listener.aborts == {AbortResult.ASKED: 1}

    async def test_an_abort_is_confirmed_by_the_last_delta(self, desk: Desk) -> None:
        """Counted when it is true, not when it was wished."""
        ticket = desk.bring()
        desk.cancel(ticket)
        desk.step(desk.last(ticket, FinishReason.CANCELLED))
        assert desk.office.listener.aborts == {AbortResult.ASKED: 1, AbortResult.CONFIRMED: 1}

    async def test_a_cancel_after_the_end_is_a_no_op(self, desk: Desk) -> None:
        """No abort, no error, no count (S02 b)."""
        ticket = desk.bring()
        desk.step(desk.last(ticket))
        desk.cancel(ticket)
        desk.executor.on_control(Cancel(EngineId(999), CancelReason.CLIENT))
        assert desk.engine.ids_of("abort") == []
        assert desk.office.listener.aborts == {}

    async def test_a_cancel_may_overtake_its_request(self, desk: Desk) -> None:
        """A request that ended on its way here is dropped, and waits for no slot either."""
        spec = GenerationSpec(prompt=(1,), stop=StopRules(max_tokens=1))
        desk.bring()
        desk.bring()
        ticket = desk.office.open(phase=Phase.WAITING)
        desk.cancel(ticket)
        desk.executor.on_resolved(Resolved(ticket.engine_id, spec))
        assert desk.executor.waiting_requests == 0
        assert ticket.engine_id not in desk.engine.submitted

    async def test_a_request_that_ends_in_the_waiting_room_is_not_submitted(self, desk: Desk) -> None:
        """Also when its cancel is still under way when its turn comes."""
        first, _, third = desk.bring(), desk.bring(), desk.bring()
        desk.office.ledger.end(third, Outcome.DEADLINE, Terminal(error=GenerationFailed("x")))
        desk.step(desk.last(first))
        assert third.engine_id not in desk.engine.submitted
        assert desk.executor.running_sequences == 1


class TestSubmit:
    async def test_what_the_engine_refuses_fails_alone(self) -> None:
        """An exception of one request's data is that request's end; its neighbour is submitted."""
        desk = Desk(RaisesOnSubmit(only=[1]))
        desk.engine.starts = 1
        bad, good = desk.bring(), desk.bring()
        assert bad.outcome is Outcome.FAILED
        assert isinstance(last_word(bad).error, GenerationFailed)
        assert "does not take this request" not in str(last_word(bad).error)
        assert good.phase is Phase.PREFILL
        assert desk.executor.running_sequences == 1

    @pytest.mark.parametrize("fatal", [EngineDead("gone"), InternalError("a bug")])
    async def test_what_is_fatal_is_not_one_requests_fault(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch, fatal: Exception
    ) -> None:
        """A dead engine and a broken invariant go up."""

        def submit(*_: Any) -> None:
            raise fatal

        monkeypatch.setattr(desk.engine, "submit", submit)
        with pytest.raises(type(fatal)):
            desk.bring()

    async def test_the_callers_trace_headers_go_with_it(self, desk: Desk) -> None:
        """As the listener hands them on; a request without any has none."""
        ticket = desk.office.open(phase=Phase.WAITING)
        ticket.caller.trace_headers = {"traceparent": "00-1"}  # type: ignore[misc]
        spec = GenerationSpec(prompt=(1, 2), stop=StopRules(max_tokens=3), n=2, priority=1.5, cache_salt="s")
        desk.executor.on_resolved(Resolved(ticket.engine_id, spec))
        given = desk.engine.submitted[ticket.engine_id]
        assert given.trace_headers == (("traceparent", "00-1"),)
        assert (given.prompt, given.n, given.priority, given.cache_salt) == ((1, 2), 2, 1.5, "s")


class TestSteps:
    async def test_a_sound_step_is_passed_on_untouched(self, desk: Desk) -> None:
        """No copy is made on the hot path."""
        ticket = desk.bring()
        step = EngineStep([Delta(ticket.engine_id, [5])], 0.0, 0.0)
        assert desk.executor.on_step(step) is step
        assert ticket.phase is Phase.DECODE

    async def test_a_flawed_delta_fails_its_request_and_no_other(self, desk: Desk) -> None:
        """Neighbours in the same step keep their tokens, before and after it."""
        one, other = desk.bring(), desk.bring()
        good = Delta(other.engine_id, [5])
        assert desk.step(Delta(one.engine_id, [-1]), good) == [good]
        assert (one.outcome, other.outcome) == (Outcome.FAILED, None)
        assert desk.engine.ids_of("abort") == [one.engine_id]
        assert desk.step(good, Delta(one.engine_id, [5]), good)[0] is good

    async def test_a_flawed_request_is_aborted_once(self, desk: Desk) -> None:
        """However often the engine goes on with it."""
        ticket = desk.bring()
        for _ in range(3):
            desk.step(Delta(ticket.engine_id, [-1]))
        assert desk.engine.ids_of("abort") == [ticket.engine_id]

    async def test_a_flawed_last_delta_frees_the_slot_without_an_abort(self, desk: Desk) -> None:
        """The engine has let go of it already."""
        ticket = desk.bring()
        assert desk.step(Delta(ticket.engine_id, [], is_last=True)) == []
        assert ticket.outcome is Outcome.FAILED
        assert desk.engine.ids_of("abort") == []
        assert desk.executor.is_idle

    async def test_nobody_knows_a_stranger(self, desk: Desk) -> None:
        """Deltas of unknown ids are nobody's, and harm nobody in their step."""
        ticket = desk.bring()
        good = Delta(ticket.engine_id, [5])
        assert desk.step(Delta(EngineId(999), [5], is_last=True), good) == [good]
        assert desk.executor.running_sequences == 1

    async def test_the_last_delta_counts_once(self, desk: Desk) -> None:
        """Said twice, the slot is still freed once."""
        one, _ = desk.bring(), desk.bring()
        assert len(desk.step(desk.last(one), desk.last(one))) == 1
        assert desk.executor.running_sequences == 1

    async def test_tokens_after_an_abort_are_no_flaw(self, desk: Desk) -> None:
        """Those under way are expected; nobody is failed for them."""
        ticket = desk.bring()
        desk.cancel(ticket)
        desk.step(Delta(ticket.engine_id, [5]))
        assert desk.office.listener.outcomes == {Outcome.CANCELLED: 1}
        assert desk.engine.ids_of("abort") == [ticket.engine_id]


class TestFlow:
    async def test_a_held_request_is_paused_and_a_read_one_resumed(self, desk: Desk) -> None:
        """The message says 'look'; the outbox says which."""
        ticket = desk.bring()
        for held in (True, True, False, False, True):
            ticket.outbox.is_held = held
            ticket.is_flow_posted = True
            desk.executor.on_control(Flow(ticket.engine_id))
            assert not ticket.is_flow_posted
        calls = [call for call, _ in desk.engine.calls if call != "submit"]
        assert calls == ["pause", "resume", "pause"]

    async def test_an_engine_that_cannot_pause_is_not_asked(self) -> None:
        """Its bound was reserved at the door."""
        desk = Desk(ScriptedEngine(capabilities=EngineCapabilities(can_pause=False)))
        ticket = desk.bring()
        ticket.outbox.is_held = True
        desk.executor.on_control(Flow(ticket.engine_id))
        assert [call for call, _ in desk.engine.calls] == ["submit"]

    async def test_what_is_being_aborted_is_left_alone(self, desk: Desk) -> None:
        """No pause after the abort, none for a stranger."""
        ticket = desk.bring()
        desk.cancel(ticket)
        ticket.outbox.is_held = True
        desk.executor.on_control(Flow(ticket.engine_id))
        desk.executor.on_control(Flow(EngineId(999)))
        assert desk.engine.ids_of("pause") == []


class TestProbes:
    def probe(self, desk: Desk) -> Ticket:
        ticket = desk.office.open(phase=Phase.WAITING, is_probe=True)
        desk.office.ledger.admit(ticket, 0)
        spec = GenerationSpec(prompt=(1,), stop=StopRules(max_tokens=1), is_probe=True)
        desk.executor.on_resolved(Resolved(ticket.engine_id, spec))
        return ticket

    async def test_a_free_engine_does_the_work(self, desk: Desk) -> None:
        """A probe is real work where no user needs the engine, and nothing else answers it."""
        desk.step(desk.last(desk.bring()))
        assert not desk.executor.vouches()
        probe = self.probe(desk)
        assert probe.engine_id in desk.engine.submitted
        desk.step()
        assert not probe.is_ended
        assert desk.step(desk.last(probe)) == [desk.last(probe)]
        assert desk.executor.is_idle

    @pytest.mark.parametrize("users", [1, 2, 3])
    async def test_a_busy_engine_answers_by_moving_on(self, desk: Desk, users: int) -> None:
        """With a slot free, with none, and with users who wait: no token is made, and nobody's turn taken."""
        busy = [desk.bring() for _ in range(users)]
        desk.step(Delta(busy[0].engine_id, [5]))
        assert desk.executor.vouches()
        probe = self.probe(desk)
        assert probe.outcome is Outcome.COMPLETED
        assert last_word(probe).finish_reason is FinishReason.LENGTH
        assert probe.engine_id not in desk.engine.submitted
        assert desk.executor.waiting_requests == max(0, users - 2)

    @pytest.mark.parametrize("users", [1, 2])
    async def test_a_busy_engine_that_has_never_moved_does_not_answer(self, desk: Desk, users: int) -> None:
        """Nobody vouches for it. Its first step does; until then the probe takes no slot and no turn."""
        busy = [desk.bring() for _ in range(users)]
        probe = self.probe(desk)
        assert not probe.is_ended
        assert probe.engine_id not in desk.engine.submitted
        assert (desk.executor.waiting_requests, desk.executor.is_idle) == (0, False)
        desk.step(Delta(busy[0].engine_id, [5]))
        assert probe.outcome is Outcome.COMPLETED

    async def test_new_counts_alone_are_no_sign_of_life(self, desk: Desk) -> None:
        """Of an engine that tells how full its cache is nobody knows by that whether it moves."""
        busy = desk.bring()
        probe = self.probe(desk)
        counts = EngineStep([], 0.0, 0.0, used_blocks=3, is_iteration=False)
        assert desk.executor.on_step(counts) is counts
        assert not desk.executor.vouches()
        assert not probe.is_ended
        desk.step(Delta(busy.engine_id, [5]))
        assert desk.executor.vouches()
        assert probe.outcome is Outcome.COMPLETED

    async def test_a_probe_that_users_overtake_is_answered_by_the_next_step(self, desk: Desk) -> None:
        """It was submitted to a free engine; it waits for none of them, keeps no place, is not counted."""
        desk.step(desk.last(desk.bring()))
        probe = self.probe(desk)
        user = desk.bring()
        assert not probe.is_ended
        desk.step(Delta(user.engine_id, [5]))
        assert probe.outcome is Outcome.COMPLETED
        assert desk.office.ledger.admitted_probes == 0
        assert desk.engine.ids_of("abort") == [probe.engine_id]
        desk.step(desk.last(probe, FinishReason.CANCELLED))
        assert desk.executor.running_sequences == 1
        assert desk.office.listener.aborts == {}

    async def test_readers_that_sleep_leave_a_free_slot_to_the_probe(self, desk: Desk) -> None:
        """An engine that works for nobody shows nothing: from then on the held probe is work."""
        user = desk.bring()
        probe = self.probe(desk)
        assert probe.engine_id not in desk.engine.submitted
        user.outbox.is_held = True
        desk.executor.on_control(Flow(user.engine_id))
        assert probe.engine_id in desk.engine.submitted

    async def test_a_probe_that_leaves_is_forgotten(self, desk: Desk) -> None:
        """Held or at work: the framework has given it up."""
        desk.bring()
        held = self.probe(desk)
        desk.cancel(held)
        desk.step()
        assert desk.engine.ids_of("abort") == []
        assert desk.engine.ids_of("submit") == [1]
