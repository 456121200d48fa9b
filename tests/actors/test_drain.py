"""Promises of the drain, on a fake clock: who finishes, who is moved, who is interrupted, and when."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.admission import Admission
from actors.drain import HEARTBEAT_S, DrainCoordinator, DrainLadder
from actors.outbox import Terminal
from actors.settings import GraphSettings
from protocols.engine import EngineCapabilities
from protocols.errors import EngineShutdown
from protocols.steps import FinishReason
from protocols.telemetry import DrainReport, Outcome, WorkerState
from tests.actors.office import Office, closed_lane
from tests.actors.world import open_world as open_audited
from tests.doubles.engines import NeverFirstToken, ScriptedEngine, SteppingEngine, engine_info
from tests.doubles.scheduling import run_seeded

if TYPE_CHECKING:
    from tests.actors.world import Visit, World
    from tests.conftest import OpenWorld

pytestmark = pytest.mark.anyio


def ladder(move_s: float, end_s: float) -> DrainLadder:
    """Points in time, counted from now."""
    now_s = anyio.current_time()
    return DrainLadder(started_s=now_s, move_at_s=now_s + move_s, end_at_s=now_s + end_s)


async def drained(world: World, move_s: float = 7.0, end_s: float = 10.0) -> DrainReport:
    return await world.graph.drain_by(ladder(move_s, end_s))


def report_of(**figures: Any) -> DrainReport:
    """A report with nothing in it but what is named."""
    counts = dict.fromkeys(("completed", "ended_otherwise", "moved", "interrupted"), 0)
    return DrainReport(**{**counts, **figures})


def seconds(value: float) -> Any:
    """Equal up to what adding floats costs."""
    return pytest.approx(value, abs=1e-6)


class TestFinishing:
    async def test_an_idle_worker_is_drained_at_once(self, open_world: OpenWorld) -> None:
        """Nobody to wait for."""
        async with open_world() as world:
            report = await drained(world)
            assert report == report_of(live_at_start=0, seconds=0.0)
            assert world.listener.states[-2:] == [WorkerState.DRAINING, WorkerState.DRAINED]

    async def test_work_in_hand_ends_with_all_its_tokens(self, open_world: OpenWorld) -> None:
        """And the drain is over as soon as it has, not at the end of the budget (S03)."""
        async with open_world(SteppingEngine(step_s=0.01)) as world:
            visit = world.ask(max_tokens=200, ignore_eos=True)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(visit.answer)
                await anyio.sleep(0.205)
                report = await drained(world, 21, 30)
            assert len(visit.reader.tokens) == 200
            assert visit.reader.finish_reasons == ["length"]
            assert report == report_of(live_at_start=1, completed=1, seconds=seconds(1.795))

    async def test_those_who_wait_for_a_slot_are_work_in_hand(self, open_world: OpenWorld) -> None:
        """Admitted is admitted: a slot that gets free during the drain is given to them."""
        async with open_world(SteppingEngine(max_num_seqs=1)) as world:
            for _ in range(3):
                await world.ask_settled(max_tokens=3)
            report = await drained(world)
            assert report.completed == 3
            assert world.outcomes() == {Outcome.COMPLETED: 3}

    async def test_a_request_sent_before_the_signal_is_work_in_hand(self, open_world: OpenWorld) -> None:
        """Even if nobody has looked at it yet."""
        async with open_world(SteppingEngine()) as world:
            world.ask(max_tokens=3, n=2)
            report = await drained(world)
            assert (report.live_at_start, report.completed) == (1, 1)
            assert world.outcomes() == {Outcome.COMPLETED: 1}

    async def test_newcomers_are_refused_at_once_in_the_word_that_moves_them(
        self, open_world: OpenWorld
    ) -> None:
        """While it drains and after, until it is resumed."""
        async with open_world(NeverFirstToken()) as world:
            await world.ask_settled()
            world.graph.drain.begin(ladder(7, 10))
            late = await world.ask_settled()
            assert isinstance((await late.answer()).error, EngineShutdown)
            assert world.listener.rejections == {"draining": 1}
            await world.graph.drain.wait_over()
            later = await world.ask_settled()
            assert isinstance((await later.answer()).error, EngineShutdown)

    async def test_newcomers_do_not_keep_a_drain_alive(self) -> None:
        """It waits for those who were there when the door closed, however many knock after them."""
        office = Office()
        admission = Admission(office.ledger, GraphSettings(), EngineCapabilities(), engine_info())
        coordinator = DrainCoordinator(
            closed_lane()[0], office.ledger, admission, anyio.current_time, office.listener
        )
        ticket = office.open()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(coordinator.run)
            coordinator.begin(ladder(7, 10))
            await anyio.wait_all_tasks_blocked()
            office.open()
            office.ledger.end(ticket, Outcome.COMPLETED, Terminal(finish_reason=FinishReason.EOS))
            report = await coordinator.wait_over()
            tasks.cancel_scope.cancel()
        assert (report.live_at_start, report.completed, report.seconds) == (1, 1, 0.0)
        assert office.ledger.live_count == 1

    async def test_who_ends_in_any_other_way_has_not_completed(self, open_world: OpenWorld) -> None:
        """A client that left, one whose frontend had enough, a failure, one that is served: told apart."""
        engine = ScriptedEngine()
        async with open_world(engine) as world:
            # Completed before the door closes: not of this drain.
            early = await world.ask_settled()
            engine.finish(early.id)
            await world.settle()
            leaves, fails, served = [await world.ask_settled() for _ in range(3)]
            has_enough = await world.ask_settled(stop=["\n"])
            world.graph.drain.begin(ladder(50, 60))
            late = await world.ask_settled()
            await leaves.leave()
            engine.say(has_enough.id, 1, 2)
            await has_enough.reader.read()
            await has_enough.leave()
            engine.fail(fails.id)
            engine.finish(served.id)
            report = await world.graph.drain.wait_over()
            assert late.ticket.outcome is Outcome.REFUSED
            completed = [has_enough.ticket.outcome, served.ticket.outcome]
            assert completed == [Outcome.STOPPED_BY_FRONTEND, Outcome.COMPLETED]
            assert [leaves.ticket.outcome, fails.ticket.outcome] == [Outcome.CANCELLED, Outcome.FAILED]
            assert report == report_of(live_at_start=4, completed=2, ended_otherwise=2, seconds=0.0)
            for visit in (leaves, has_enough):
                engine.finish(visit.id)

    async def test_a_reader_that_stalls_ends_for_its_own_reason(self, open_world: OpenWorld) -> None:
        """It is not interrupted by the drain, and does not use up the budget."""
        async with open_world(SteppingEngine(), outbox_tokens=4, stall_timeout_s=3.0) as world:
            await world.ask_settled(max_tokens=50)
            report = await drained(world)
            assert world.outcomes() == {Outcome.STALLED: 1}
            assert (report.completed, report.ended_otherwise, report.interrupted) == (0, 1, 0)
            assert report.seconds == pytest.approx(3.0, abs=0.2)


class TestLadder:
    async def test_what_can_be_moved_ends_first_and_the_rest_at_the_end(self, open_world: OpenWorld) -> None:
        """Each exactly at its rung, with the error a frontend may move, and an abort for each (S04)."""
        async with open_world(NeverFirstToken()) as world:
            movable, fixed = await world.ask_settled(), await world.ask_settled(n=2)
            start_s = anyio.current_time()
            report = await drained(world, 7.0, 10.0)
            ended = [world.listener.stories[visit.id].ended_s - start_s for visit in (movable, fixed)]
            assert ended == [seconds(7.0), seconds(10.0)]
            assert report == report_of(live_at_start=2, moved=1, interrupted=2, seconds=seconds(10.0))
            assert [world.listener.stories[visit.id].is_moved for visit in (movable, fixed)] == [True, False]
            assert world.engine.ids_of("abort") == [movable.id, fixed.id]
            for visit in (movable, fixed):
                assert isinstance((await visit.answer()).error, EngineShutdown)
                assert visit.reader.finish_reasons == []

    async def test_tokens_before_an_interruption_are_delivered_once(self, open_world: OpenWorld) -> None:
        """Those a frontend has are those it continues from."""
        async with open_world(SteppingEngine(step_s=0.5)) as world:
            visit = world.ask(max_tokens=1000)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(visit.answer)
                await drained(world, 2.2, 3.0)
            assert visit.reader.tokens == [1000, 1001, 1002, 1003]
            assert isinstance(visit.reader.error, EngineShutdown)
            assert world.outcomes() == {Outcome.INTERRUPTED: 1}

    async def test_who_finishes_between_the_rungs_has_finished(self, open_world: OpenWorld) -> None:
        """Only those who are left are interrupted."""
        engine = NeverFirstToken()
        async with open_world(engine) as world:
            quick, slow = await world.ask_settled(n=2), await world.ask_settled()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(drained, world, 7.0, 10.0)
                await anyio.sleep(8.5)
                engine.fail(quick.id)
            assert world.graph.drain.report is not None
            assert world.graph.drain.report.seconds == seconds(8.5)
            assert world.outcomes() == {Outcome.FAILED: 1, Outcome.INTERRUPTED: 1}
            assert slow.ticket.outcome is Outcome.INTERRUPTED

    async def test_a_ladder_in_the_past_ends_everybody_at_once(self, open_world: OpenWorld) -> None:
        """Nothing is waited for when the time is over already."""
        async with open_world(NeverFirstToken()) as world:
            await world.ask_settled(n=2)
            report = await drained(world, 0.0, 0.0)
            assert (report.interrupted, report.seconds) == (1, 0.0)

    async def test_seconds_count_from_the_signal(self, open_world: OpenWorld) -> None:
        """Not from the moment somebody got round to it."""
        async with open_world() as world:
            asked = ladder(7.0, 10.0)
            await anyio.sleep(5.0)
            report = await world.graph.drain_by(asked)
            assert report.seconds == seconds(5.0)

    async def test_it_says_how_many_are_left(self, open_world: OpenWorld) -> None:
        """And for how long they may be: at the start, at every heartbeat, at every rung; zero at the end."""
        async with open_world(NeverFirstToken()) as world:
            await world.ask_settled(n=2)
            await drained(world, 2.5 * HEARTBEAT_S, 3.5 * HEARTBEAT_S)
            assert world.listener.drain_figures == [
                (1, seconds(3.5 * HEARTBEAT_S)),
                (1, seconds(2.5 * HEARTBEAT_S)),
                (1, seconds(1.5 * HEARTBEAT_S)),
                (1, seconds(HEARTBEAT_S)),
                (1, 0.0),
                (0, 0.0),
            ]
            assert [report.seconds for report in world.listener.drain_reports] == [seconds(3.5 * HEARTBEAT_S)]


class TestHurry:
    async def test_a_sooner_ladder_holds(self, open_world: OpenWorld) -> None:
        """A second signal ends the wait at once."""
        async with open_world(NeverFirstToken()) as world:
            await world.ask_settled(n=2)
            world.graph.drain.begin(ladder(70, 100))
            await anyio.sleep(4.0)
            world.graph.drain.begin(ladder(0, 0))
            report = await world.graph.drain.wait_over()
            assert (report.seconds, report.interrupted) == (seconds(4.0), 1)

    async def test_a_later_ladder_prolongs_nothing(self, open_world: OpenWorld) -> None:
        """Rung by rung the sooner one holds."""
        async with open_world(NeverFirstToken()) as world:
            await world.ask_settled()
            await world.ask_settled(n=2)
            start_s = anyio.current_time()
            world.graph.drain.begin(ladder(7, 100))
            report = await drained(world, 9, 10)
            ended = sorted(story.ended_s - start_s for story in world.listener.stories.values())
            assert ended == [seconds(7), seconds(10)]
            assert report.seconds == seconds(10)

    async def test_all_who_ask_get_the_same_drain(self, open_world: OpenWorld) -> None:
        """One state machine: one report, one count, one DRAINING."""
        async with open_world(NeverFirstToken()) as world:
            await world.ask_settled()
            reports: list[DrainReport] = []

            async def ask() -> None:
                reports.append(await drained(world))

            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(ask)
            assert len(reports) == 3
            assert len(set(map(id, reports))) == 1
            assert world.listener.states.count(WorkerState.DRAINING) == 1


class TestResume:
    async def test_not_while_a_drain_is_on(self, open_world: OpenWorld) -> None:
        """It says so and changes nothing."""
        async with open_world(NeverFirstToken()) as world:
            await world.ask_settled()
            world.graph.drain.begin(ladder(7, 10))
            assert not world.graph.drain.resume()
            assert world.graph.drain.state is WorkerState.DRAINING
            await world.graph.drain.wait_over()

    async def test_a_drained_worker_serves_again(self, open_world: OpenWorld) -> None:
        """As if nothing had been; resuming a serving worker is no fault."""
        async with open_world(SteppingEngine()) as world:
            assert world.graph.drain.resume()
            await drained(world)
            assert world.graph.drain.resume()
            visit = world.ask(max_tokens=2)
            assert (await visit.answer()).finish_reasons == ["length"]
            assert world.graph.drain.state is WorkerState.SERVING

    @pytest.mark.parametrize("seed", range(10))
    def test_a_resume_at_once_serves_at_once(self, seed: int) -> None:
        """Nothing that the drain still had to say ends those who come after it, in any order of tasks."""

        async def play() -> None:
            async with open_audited(NeverFirstToken()) as world:
                await world.ask_settled()
                await drained(world, 1, 1)
                world.graph.drain.resume()
                assert not (await world.ask_settled()).ticket.is_ended

        run_seeded(play, seed=seed)

    async def test_the_next_drain_has_its_own_report(self, open_world: OpenWorld) -> None:
        """Counts of the one before are not carried over; nor is its ladder."""
        async with open_world(NeverFirstToken()) as world:
            await world.ask_settled()
            assert (await drained(world, 1, 1)).interrupted == 1
            world.graph.drain.resume()
            await world.ask_settled()
            await world.ask_settled()
            report = await drained(world, 7, 10)
            assert report == report_of(live_at_start=2, moved=2, interrupted=2, seconds=seconds(7))
            assert world.listener.drain_reports[-1] is report

    async def test_a_drained_worker_has_nothing_to_drain(self, open_world: OpenWorld) -> None:
        """cleanup() after a control route, or one more signal: no new drain, the same report, a shut door."""
        async with open_world(SteppingEngine()) as world:
            await world.ask_settled(max_tokens=3)
            report = await drained(world)
            states = list(world.listener.states)
            assert await drained(world) is report
            world.graph.drain.begin(ladder(0, 0))
            await world.settle()
            assert isinstance((await world.ask().answer()).error, EngineShutdown)
            assert world.listener.states == states
            assert world.listener.drain_reports == [report]


@dataclass(frozen=True)
class Signal:
    """A drain is asked for: seconds from the start, and how long after that its rungs come."""

    begun_s: int
    move_s: int
    more_s: int

    @property
    def moves_at_s(self) -> int:
        return self.begun_s + self.move_s

    @property
    def ends_at_s(self) -> int:
        return self.moves_at_s + self.more_s


Seconds = st.integers(0, 30)


@given(
    requests=st.lists(st.tuples(st.integers(1, 2), st.integers(1, 40)), max_size=6),
    signals=st.lists(st.builds(Signal, Seconds, Seconds, Seconds), min_size=1, max_size=3),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=40)
def test_any_drain_ends_on_time_and_its_report_adds_up(
    requests: list[tuple[int, int]], signals: list[Signal], seed: int
) -> None:
    """Who can finish before his rung does, who cannot ends exactly at it, and nobody is counted twice.

    Requests are (n, seconds of work); of several ladders the sooner holds, rung by rung.
    """
    moves_at_s = min(signal.moves_at_s for signal in signals)
    ends_at_s = min(signal.ends_at_s for signal in signals)

    async def play() -> None:
        async with open_audited(SteppingEngine(max_num_seqs=32, step_s=1.0), stall_timeout_s=1000.0) as world:
            start_s = anyio.current_time()

            def lasted_s(visit: Visit) -> float:
                return world.listener.stories[visit.id].ended_s - start_s

            visits = [await world.ask_settled(n=n, max_tokens=work_s) for n, work_s in requests]
            for signal in sorted(signals, key=lambda each: each.begun_s):
                # Half a second off, so that no signal falls on a step.
                await anyio.sleep(max(0.0, start_s + signal.begun_s + 0.5 - anyio.current_time()))
                world.graph.drain.begin(ladder(signal.move_s, signal.move_s + signal.more_s))
                await world.settle()
            report = await world.graph.drain.wait_over()
            for (n, work_s), visit in zip(requests, visits, strict=True):
                rung_s = (moves_at_s if n == 1 else ends_at_s) + 0.5
                outcome = Outcome.COMPLETED if work_s < rung_s else Outcome.INTERRUPTED
                assert visit.ticket.outcome is outcome
                assert lasted_s(visit) == seconds(min(work_s, rung_s))
            began_s = min(signal.begun_s for signal in signals) + 0.5
            drained = Counter(visit.ticket.outcome for visit in visits if lasted_s(visit) >= began_s)
            assert report.live_at_start == drained.total()
            assert (report.completed, report.ended_otherwise) == (drained[Outcome.COMPLETED], 0)
            assert report.interrupted == drained[Outcome.INTERRUPTED]
        world.check_closed()

    run_seeded(play, seed=seed)


async def test_a_drain_of_a_scripted_engine_needs_no_step(open_world: OpenWorld) -> None:
    """The wait is for requests, not for the engine: one that says nothing delays no rung."""
    async with open_world(ScriptedEngine(is_confirming=False)) as world:
        await world.ask_settled()
        report = await drained(world, 1, 2)
        assert report.seconds == seconds(1)
        assert not world.graph.executor.is_idle
