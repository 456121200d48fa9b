"""What is promised of a graph at all times, looked at after every move of a story."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import anyio

from actors.cancellation import SWEEP_S
from protocols.errors import EngineShutdown, Overloaded, ReaderStalled
from protocols.telemetry import Outcome, Phase, WorkerState
from tests.actors.census import DEADLINE_S, DUST_S, STALL_S, living_tasks
from tests.actors.stories import STEP_TOKENS, Kind

if TYPE_CHECKING:
    from tests.actors.census import Census
    from tests.actors.stories import Story
    from tests.actors.story_engine import StoryEngine
    from tests.actors.world import Visit, World


class Judge:
    """Of one story on one graph. Raises AssertionError where a promise is broken."""

    def __init__(self, story: Story, engine: StoryEngine, world: World, census: Census) -> None:
        self.story = story
        self.engine = engine
        self.world = world
        self.census = census

    def check(self, *, is_settled: bool) -> None:
        self.world.check_books()
        aborts = Counter(self.engine.ids_of("abort"))
        assert all(count == 1 for count in aborts.values())
        assert self.engine.most_running <= self.story.max_num_seqs
        # Probes are in no count.
        reasons = [visit.ticket.cancel_reason for visit in self.world.visits if not visit.ticket.is_probe]
        assert self.world.listener.cancellations.total() == len(reasons) - reasons.count(None)
        for visit in self.world.visits:
            self._check_visit(visit)
        if is_settled and self.census.doom is None:
            self._check_rest()

    def _check_visit(self, visit: Visit) -> None:
        said = self.engine.said.get(visit.id, [])
        reader, outcome = visit.reader, visit.ticket.outcome
        delivered = [(chunk["index"], token) for chunk in reader.chunks for token in chunk["token_ids"]]
        assert delivered == said[: len(delivered)]
        assert reader.terminals == (1 if visit.ticket.outbox.is_drained else 0)
        if outcome is Outcome.COMPLETED and self._has_read_all(visit):
            assert delivered == said
        if outcome is not None:
            self._check_outcome(visit, outcome)
        if self.census.doom is None:
            self._check_due(visit)

    def _has_read_all(self, visit: Visit) -> bool:
        """Whether it got its last word, and that was about all that was said.

        Not: readers that left or were given up, and probes, whose engine may be told to stop in the midst.
        """
        ticket = visit.ticket
        has_gone = visit.is_closed or ticket.is_reader_gone or ticket.outbox.is_abandoned
        return ticket.outbox.is_drained and not has_gone and not ticket.is_probe

    def _check_due(self, visit: Visit) -> None:
        """Nobody lives beyond a deadline, no reader is waited for beyond a stall, each with its sweep."""
        now_s, most_s = anyio.current_time(), SWEEP_S * 2 + DUST_S
        if self.census.asks[visit.id].has_deadline and not visit.ticket.is_ended:
            assert now_s - visit.ticket.times.arrived_s <= DEADLINE_S + most_s
        outbox, is_gone = visit.ticket.outbox, visit.is_closed or visit.ticket.is_reader_gone
        if (since_s := outbox.waiting_since_s) is not None and not (is_gone or outbox.is_abandoned):
            assert now_s - since_s <= STALL_S + most_s

    def _check_outcome(self, visit: Visit, outcome: Outcome) -> None:
        error = visit.ticket.outbox.terminal.error if visit.ticket.outbox.terminal else None
        kind = self.census.kinds[visit.id]
        is_wrong = kind in {Kind.INVALID, Kind.MALFORMED} or (
            kind is Kind.WIDE and self.story.max_num_seqs == 1
        )
        lived_s = self.world.listener.stories[visit.id].ended_s - visit.ticket.times.arrived_s
        match outcome:
            case Outcome.COMPLETED:
                # A busy engine answers for a probe by moving on.
                assert visit.id in self.census.finished or (visit.ticket.is_probe and self.engine.steps)
                reasons = self.world.listener.stories[visit.id].finish_reasons
                assert all(reasons[index] == "eos" for index in self.engine.ended.get(visit.id, ()))
            case Outcome.CANCELLED | Outcome.STOPPED_BY_FRONTEND:
                assert visit.id in self.census.left
                assert outcome is Outcome.CANCELLED or kind is Kind.STOPS
            case Outcome.DEADLINE:
                assert self.census.asks[visit.id].has_deadline
                assert DEADLINE_S - DUST_S <= lived_s <= DEADLINE_S + SWEEP_S + DUST_S
            case Outcome.STALLED:
                assert lived_s >= STALL_S - DUST_S
            case Outcome.INTERRUPTED:
                assert visit.id <= self.census.last_drained
            case Outcome.REFUSED:
                is_refused = (
                    kind is Kind.GUIDED and self.census.constraints[visit.id] in self.census.unprepared
                )
                is_given_up = visit.ticket.outbox.is_abandoned and isinstance(error, ReaderStalled)
                is_told = isinstance(error, Overloaded | EngineShutdown) or is_given_up
                assert is_told or is_wrong or is_refused
                # One place is kept for a probe.
                is_crowded = isinstance(error, Overloaded) and error.reason == "max_live"
                assert not (is_crowded and visit.ticket.is_probe) or visit.id in self.census.rivals
            case Outcome.FAILED:
                is_refused = (
                    visit.id in self.engine.ids_of("submit") and visit.id not in self.engine.submitted
                ) or self.census.constraints[visit.id] in self.census.unprepared
                assert self.census.doom is not None or visit.id in self.census.spoiled or is_refused
        assert not is_wrong or visit.id not in self.engine.submitted

    def _check_rest(self) -> None:
        """What holds whenever nothing can move without time passing."""
        world, story = self.world, self.story
        world.check_lanes(except_for="resolver_parked" if self.engine.preparer.is_busy else None)
        if self.census.tasks_when_open:
            assert living_tasks() == self.census.tasks_when_open + len(self.census.pulling)
        assert world.graph.executor.running_sequences == self.engine.running <= story.max_num_seqs
        if world.graph.drain.state is WorkerState.DRAINED:
            assert world.graph.ledger.live_count == 0
        if world.graph.drain.state is WorkerState.DRAINING and self.census.drain_ends_s is not None:
            assert anyio.current_time() < self.census.drain_ends_s
        self._check_waiting_room()
        for visit in world.visits:
            self._check_bound(visit)
            # Only those whose grammar is being prepared, or who wait for their turn at that, are held up.
            if visit.ticket.phase is Phase.RESOLVING:
                assert self.engine.preparer.is_busy
                assert self.census.kinds[visit.id] is Kind.GUIDED
            # Whoever else is slow: what the engine has said of a request lies before its reader.
            if visit.id in self.engine.live and not visit.ticket.is_ended:
                assert len(visit.reader.tokens) + visit.ticket.outbox.waiting_tokens == len(
                    self.engine.said[visit.id]
                )
        self.engine.fresh.clear()

    def _check_waiting_room(self) -> None:
        """Nobody waits for a slot that is free: at most, those are kept free that a large one needs."""
        waiting = [visit.ticket for visit in self.world.visits if visit.ticket.phase is Phase.WAITING]
        sizes = [ticket.n for ticket in waiting if not ticket.is_probe]
        assert len(sizes) == self.world.graph.executor.waiting_requests
        free = self.story.max_num_seqs - self.engine.running
        assert not sizes or max(sizes) > free

    def _check_bound(self, visit: Visit) -> None:
        """No outbox above its bound and one step, or what was said before anybody could say stop."""
        outbox, can_pause = visit.ticket.outbox, self.story.can_pause
        most = outbox.bound_tokens
        if can_pause:
            most += max(STEP_TOKENS, self.engine.fresh[visit.id])
        assert outbox.waiting_tokens <= max(most, self.census.waited[visit.id])
        self.census.waited[visit.id] = outbox.waiting_tokens
        if can_pause and not visit.ticket.is_ended and visit.id in self.engine.live:
            assert (visit.id in self.engine.paused) == outbox.is_held

    def first_work_s(self) -> tuple[float, float]:
        """In how many seconds the engine has something to do, at the soonest and at the latest.

        Where all are held back, that is with the first of them to be ended early.
        """
        if self.engine.is_owing or not self.engine.live:
            return 0.0, 0.0
        held = [visit.ticket for visit in self.world.visits if visit.id in self.engine.live]
        sinces_s = [ticket.outbox.waiting_since_s for ticket in held]
        ends_s = [since_s + STALL_S for since_s in sinces_s if since_s is not None]
        ends_s += [ticket.deadline_s for ticket in held if ticket.deadline_s is not None]
        latest_s = min(ends_s) - anyio.current_time() + SWEEP_S
        is_draining = self.world.graph.drain.state is WorkerState.DRAINING
        return 0.0 if is_draining else max(0.0, latest_s - SWEEP_S), latest_s
