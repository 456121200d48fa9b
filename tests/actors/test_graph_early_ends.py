"""Promises of the whole graph to those who leave, read slowly or run out of time, and to their neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import pytest

from actors.lanes import STEP_LANE
from protocols.engine import EngineCapabilities
from protocols.errors import ReaderStalled
from protocols.steps import Delta, FinishReason
from protocols.telemetry import AbortResult, CancelReason, Outcome, Phase
from tests.doubles.callers import FakeCaller
from tests.doubles.engines import (
    NeverFirstToken,
    ScriptedEngine,
    SteppingEngine,
)

if TYPE_CHECKING:
    from tests.conftest import OpenWorld

pytestmark = pytest.mark.anyio

WITHOUT_PAUSE = EngineCapabilities(can_pause=False, max_n=8)


class TestCancel:
    async def test_a_client_that_leaves_frees_its_slot(self, open_world: OpenWorld) -> None:
        """One abort, exact usage, outcome cancelled; the same request again is served (S01)."""
        async with open_world(SteppingEngine(max_num_seqs=1, step_s=0.01)) as world:
            visit = world.ask(prompt=[1, 15, 27, 33], max_tokens=2000, ignore_eos=True)
            for _ in range(5):
                await visit.reader.read()
            taken = len(visit.reader.tokens)
            left_s = anyio.current_time()
            await visit.leave()
            again = world.ask(prompt=[1, 15, 27, 33], max_tokens=3)
            start_s = anyio.current_time()
            assert (await again.answer()).finish_reasons == ["length"]
            assert anyio.current_time() - start_s < 1.0
            await visit.answer()
            assert world.engine.ids_of("abort") == [visit.id]
            assert visit.reader.finish_reasons == ["cancelled"]
            assert visit.reader.chunks[-1]["completion_usage"]["completion_tokens"] == taken
            story = world.listener.stories[visit.id]
            assert (story.completion_tokens, story.chunks) == (taken, 6)
            assert story.cancelled_s == left_s
            assert world.outcomes() == {Outcome.CANCELLED: 1, Outcome.COMPLETED: 1}
            assert world.listener.aborts == {AbortResult.ASKED: 1, AbortResult.CONFIRMED: 1}

    async def test_cancelled_before_it_began(self, open_world: OpenWorld) -> None:
        """The engine is never called (S02 a)."""
        async with open_world(SteppingEngine()) as world:
            caller = FakeCaller()
            caller.leave()
            answer = await world.ask(caller=caller).answer()
            assert answer.finish_reasons == ["cancelled"]
            assert world.engine.calls == []

    async def test_cancelled_after_its_last_chunk(self, open_world: OpenWorld) -> None:
        """No abort, nothing counted (S02 b)."""
        async with open_world(SteppingEngine()) as world:
            visit = world.ask(max_tokens=2)
            await visit.answer()
            await visit.leave()
            world.graph.reader_gone(visit.ticket)
            await world.settle()
            assert world.engine.ids_of("abort") == []
            assert world.listener.aborts == {}
            assert world.listener.cancellations == {}
            assert world.outcomes() == {Outcome.COMPLETED: 1}

    async def test_cancelled_twice(self, open_world: OpenWorld) -> None:
        """One abort, one outcome (S02 c)."""
        async with open_world(NeverFirstToken()) as world:
            visit = await world.ask_settled()
            await visit.leave()
            await visit.leave()
            world.graph.reader_gone(visit.ticket)
            await world.settle()
            assert world.engine.ids_of("abort") == [visit.id]
            assert world.listener.cancellations == {(CancelReason.CLIENT, Phase.PREFILL): 1}

    async def test_two_requests_with_one_context_id(self, open_world: OpenWorld) -> None:
        """Both run with their own tokens; the one that leaves takes nobody with it (S02 d)."""
        async with open_world(SteppingEngine()) as world:
            stays = world.ask(caller=FakeCaller("same"), max_tokens=4)
            leaves = world.ask(caller=FakeCaller("same"), max_tokens=4)
            await leaves.reader.read()
            await leaves.leave()
            assert (await stays.answer()).tokens == [1000, 1001, 1002, 1003]
            await leaves.answer()
            assert world.outcomes() == {Outcome.COMPLETED: 1, Outcome.CANCELLED: 1}
            assert world.engine.ids_of("abort") == [leaves.id]

    @pytest.mark.parametrize("phase", [Phase.RESOLVING, Phase.WAITING, Phase.PREFILL, Phase.DECODE])
    async def test_a_disconnect_in_every_phase(self, open_world: OpenWorld, phase: Phase) -> None:
        """The written rule of the phase, and everything free at the end."""
        engine = ScriptedEngine(max_num_seqs=1)
        async with open_world(engine) as world:
            blocker = await world.ask_settled() if phase is Phase.WAITING else None
            visit = world.ask()
            if phase is not Phase.RESOLVING:
                await world.settle()
            if phase is Phase.DECODE:
                engine.say(visit.id, 5)
                await visit.reader.read()
            await visit.leave()
            await world.settle()
            assert visit.ticket.outcome is Outcome.CANCELLED
            assert (visit.id in engine.ids_of("abort")) == (phase in {Phase.PREFILL, Phase.DECODE})
            assert (visit.id in engine.submitted) == (phase in {Phase.PREFILL, Phase.DECODE})
            if blocker is not None:
                engine.finish(blocker.id)
                await world.settle()
            assert world.graph.executor.is_idle

    async def test_a_reader_that_goes_as_its_end_comes(self, open_world: OpenWorld) -> None:
        """Whatever overtakes whatever: nothing stays reserved for it."""
        async with open_world() as world:
            visit = await world.ask_settled()
            world.engine.finish(visit.id, FinishReason.EOS, [5, 6])
            for _ in range(3):
                visit.close()
                await anyio.lowlevel.checkpoint()
            await world.settle()
            assert visit.ticket.is_ended
            assert world.graph.ledger.reserved_tokens == 0

    async def test_a_frontend_that_met_a_stop_string(self, open_world: OpenWorld) -> None:
        """Aborts just as a leaving client does; the books know the difference."""
        async with open_world(SteppingEngine()) as world:
            visit = world.ask(max_tokens=50, stop=["\n"])
            await visit.reader.read()
            await visit.leave()
            await visit.answer()
            assert world.outcomes() == {Outcome.STOPPED_BY_FRONTEND: 1}

    async def test_a_burst_of_aborts_fills_no_lane(self, open_world: OpenWorld) -> None:
        """Every request leaves in one turn, each told about several times, among many strangers."""
        async with open_world(NeverFirstToken(max_num_seqs=64), max_live=64) as world:
            visits = [await world.ask_settled() for _ in range(64)]
            for number in range(2000):
                world.graph.cancel_context(f"stranger {number}")
            async with anyio.create_task_group() as tasks:
                for visit in visits * 3:
                    tasks.start_soon(visit.leave)
                for visit in visits * 2:
                    world.graph.reader_gone(visit.ticket)
            await world.settle()
            assert world.outcomes() == {Outcome.CANCELLED: 64}
            assert sorted(world.engine.ids_of("abort")) == [visit.id for visit in visits]

    async def test_a_thousand_aborts_of_one_request_fill_no_lane(self, open_world: OpenWorld) -> None:
        """However often the framework says it in one turn, the monitor hears it once."""
        async with open_world(NeverFirstToken(), max_live=1) as world:
            visit = await world.ask_settled()
            visit.caller.leave()
            for _ in range(1000):
                world.graph.cancel_context(visit.caller.context_id)
            world.graph.reader_gone(visit.ticket)
            await world.settle()
            assert world.outcomes() == {Outcome.CANCELLED: 1}
            assert world.engine.ids_of("abort") == [visit.id]

    async def test_a_burst_of_requests_that_leave_before_they_are_looked_at(
        self, open_world: OpenWorld
    ) -> None:
        """As many as the intake's lane holds, all gone in the turn in which they came."""
        async with open_world(SteppingEngine(), max_live=1) as world:
            visits = [world.ask() for _ in range(65)]
            async with anyio.create_task_group() as tasks:
                for visit in visits * 3:
                    tasks.start_soon(visit.leave)
                for visit in visits * 2:
                    world.graph.reader_gone(visit.ticket)
            await world.settle()
            assert sum(world.outcomes().values()) == 65
            assert world.outcomes().keys() <= {Outcome.CANCELLED, Outcome.REFUSED}


class TestSlowReaders:
    async def test_a_reader_that_is_behind_is_held_alone(self, open_world: OpenWorld) -> None:
        """Paused at the bound, resumed at half; its neighbour never notices; nothing is lost."""
        async with open_world(SteppingEngine(step_s=0.01), outbox_tokens=8, chunk_tokens=1) as world:
            slow, quick = world.ask(max_tokens=100), world.ask(max_tokens=100)
            start_s = anyio.current_time()
            assert len((await quick.answer()).tokens) == 100
            assert anyio.current_time() - start_s == pytest.approx(1.0)
            assert world.engine.ids_of("pause") == [slow.id]
            assert slow.ticket.outbox.waiting_tokens <= 8 + STEP_LANE
            for _ in range(4):
                await slow.reader.read()
            await world.settle()
            assert world.engine.ids_of("resume") == [slow.id]
            assert (await slow.answer()).tokens == list(range(1000, 1100))

    async def test_a_reader_at_its_bound_says_so_once_at_a_time(self, open_world: OpenWorld) -> None:
        """However often it is crossed in one turn of the loop: the message says 'look', not 'what'."""
        async with open_world(max_live=1, outbox_tokens=8, chunk_tokens=8) as world:
            visit = await world.ask_settled(max_tokens=2000)
            for _ in range(500):
                visit.ticket.outbox.put(Delta(visit.id, [5] * 8), 0.0)
                await visit.reader.read()
            (control,) = (box for box in world.graph.mailboxes() if box.actor == "executor_control")
            assert control.waiting <= 1
            await world.settle()
            assert world.engine.ids_of("pause") == []

    async def test_a_reader_that_stalls_is_ended_and_aborted(self, open_world: OpenWorld) -> None:
        """After the time-out, with its own reason; what lies there is still its own."""
        async with open_world(SteppingEngine(), outbox_tokens=8, stall_timeout_s=5.0) as world:
            visit = world.ask(max_tokens=100)
            await anyio.sleep(5.2)
            assert visit.ticket.outcome is Outcome.STALLED
            assert world.engine.ids_of("abort") == [visit.id]
            answer = await visit.answer()
            assert isinstance(answer.error, ReaderStalled)
            assert answer.tokens == list(range(1000, 1000 + len(answer.tokens)))

    async def test_an_engine_that_cannot_pause_fills_what_was_reserved(self, open_world: OpenWorld) -> None:
        """And is never asked to; the answer waits whole for its reader."""
        engine = ScriptedEngine(capabilities=WITHOUT_PAUSE)
        async with open_world(engine, outbox_tokens=8) as world:
            visit = await world.ask_settled(max_tokens=50)
            for token in range(50):
                engine.say(visit.id, token)
            engine.emit(Delta(visit.id, [], finish_reason=FinishReason.LENGTH, is_last=True))
            await world.settle()
            assert (await visit.answer()).tokens == list(range(50))
            assert engine.ids_of("pause") == []
