"""Acts a story out on the whole graph, and has it judged after every move."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from actors.cancellation import CancellationMonitor
from actors.drain import DrainLadder
from actors.executor import Executor
from actors.intake import RequestIntake
from actors.streamer import ChunkStreamer
from actors.supervisor import FutureWakeup
from actors.wakeup import EventWakeup
from protocols.errors import EngineDead, InvalidRequest
from protocols.steps import Delta, EngineId, FinishReason
from protocols.telemetry import WorkerState
from tests.actors.census import DEADLINE_S, DUST_S, HANG_S, STALL_S, Census, living_tasks
from tests.actors.deaths import check_one_death
from tests.actors.judging import Judge
from tests.actors.stories import (
    STEP_TOKENS,
    Action,
    Ask,
    Crash,
    Die,
    Drain,
    EndChoice,
    Exit,
    Fail,
    Finish,
    Flood,
    Hang,
    Kind,
    Leave,
    Part,
    Prepare,
    Preparing,
    Read,
    RefuseNext,
    Resume,
    Say,
    SayAll,
    Signal,
    Sleepy,
    Spoil,
    Story,
    Stranger,
    Wait,
)
from tests.actors.story_engine import StoryEngine, flawed
from tests.actors.world import Visit, World, open_world
from tests.doubles.callers import FakeCaller
from tests.doubles.preparers import constraint_of
from tests.doubles.scheduling import run_seeded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actors.wakeup import Wakeup

# From the signal, as the service counts: when requests are moved, and when the rest is interrupted.
MOVE_S, DRAIN_S = 7.0, 10.0
BOUND_TOKENS = 8
OPTIONS: dict[Kind, dict[str, Any]] = {
    Kind.PLAIN: {},
    Kind.WIDE: {"n": 2},
    Kind.STOPS: {"stop": ["\n"]},
    Kind.PROBE: {"_HEALTH_CHECK": True},
    Kind.INVALID: {"top_p": 7.0},
    Kind.MALFORMED: {"token_ids": "no list"},
}


BROKEN_PARTS: dict[Part, tuple[type[Any], str]] = {
    Part.INTAKE: (RequestIntake, "on_submit"),
    Part.EXECUTOR: (Executor, "on_step"),
    Part.STREAMER: (ChunkStreamer, "on_step"),
    Part.MONITOR: (CancellationMonitor, "on_sweep"),
}


class Player:
    """One story on one graph. `play` raises where a promise is broken."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.engine = StoryEngine(story)
        self.world: World
        self.new_wakeup: Callable[[], Wakeup] = EventWakeup
        self.census = Census()
        self.judge: Judge

    def play(self) -> None:
        """Start to end on trio's fake clock, in the task order of the story's seed."""
        run_seeded(self._play, seed=self.story.seed)

    def play_on_asyncio(self, *, use_uvloop: bool) -> None:
        """Start to end on the loop and with the wake-ups of the service. For stories without waits."""
        self.new_wakeup = FutureWakeup
        anyio.run(self._play, backend="asyncio", backend_options={"use_uvloop": use_uvloop})

    async def _play(self) -> None:
        tasks_before = living_tasks()
        try:
            async with (
                open_world(self.engine, new_wakeup=self.new_wakeup, **self._bounds()) as self.world,
                anyio.create_task_group() as self.readers,
            ):
                self.judge = Judge(self.story, self.engine, self.world, self.census)
                await self.world.settle()
                self.census.tasks_when_open = living_tasks()
                for move in self.story.moves:
                    await self._act(move.action)
                    await self._turn(move.turns)
                    self.judge.check(is_settled=move.turns is None)
                await self._come_to_rest()
                self.readers.cancel_scope.cancel()
        except* (EngineDead, ZeroDivisionError):
            assert self.census.doom is not None
            check_one_death(self.world, self.census.doom)
        else:
            assert self.census.doom is None
            assert self.world.crashes == []
        assert living_tasks() == tasks_before
        self.world.check_closed()
        for visit in self._readable():
            await visit.answer()
            assert visit.reader.terminals == 1
        self.judge.check(is_settled=False)

    def _bounds(self) -> dict[str, Any]:
        return {
            "max_live": self.story.max_live,
            "outbox_tokens": BOUND_TOKENS,
            "outbox_total_tokens": 120,
            "chunk_tokens": 4,
            "stall_timeout_s": STALL_S,
            "hang_timeout_s": HANG_S,
        }

    async def _turn(self, turns: int | None) -> None:
        if turns is None:
            await self.world.settle()
        for _ in range(turns or 0):
            await anyio.lowlevel.checkpoint()

    async def _come_to_rest(self) -> None:
        """The engine ends what it has, everybody reads to the end, and nothing is left anywhere."""
        await self.world.settle()
        while self.engine.live or self.engine.preparer.is_busy:
            if self.engine.preparer.is_busy:
                self.engine.preparer.release()
            for engine_id in tuple(self.engine.live):
                self._finish(engine_id, 0)
            await self.world.settle()
        for visit in self.world.visits:
            while visit.id in self.census.pulling:
                await self.world.settle()
        for visit in self._readable():
            await visit.answer()
        await self.world.settle()
        self.judge.check(is_settled=True)
        assert all(not visit.ticket.outbox.waiting_tokens for visit in self.world.visits)
        assert self.world.graph.ledger.is_empty
        assert self.world.graph.executor.is_idle
        assert self.world.graph.ledger.reserved_tokens == 0

    async def _act(self, action: Action) -> None:
        match action:
            case Ask():
                self._ask(action)
            case Prepare(how=how):
                self._prepare(how)
            case (
                Say()
                | SayAll()
                | Flood()
                | EndChoice()
                | Finish()
                | Fail()
                | Spoil()
                | Stranger()
                | RefuseNext()
            ):
                self._engine_acts(action)
            case Read(who=who, chunks=chunks):
                await self._read(who, chunks)
            case Sleepy(who=who):
                if (visit := self._pick(self._readable(), who)) is not None:
                    self.census.pulling.add(visit.id)
                    self.readers.start_soon(self._pull, visit)
            case Leave(who=who, way=way):
                await self._leave(who, way)
            case Wait(seconds=seconds):
                await self._wait(seconds)
            case Drain() | Signal() | Resume() | Die() | Hang() | Crash():
                await self._operate(action)

    def _ask(self, ask: Ask) -> None:
        metadata = {"deadline-ms": f"{DEADLINE_S * 1000}"} if ask.has_deadline else {}
        # Context 0 is everybody's own; the others are shared.
        caller = FakeCaller(f"shared {ask.context}" if ask.context else None, metadata)
        options = dict(OPTIONS.get(ask.kind, {}))
        if ask.kind is Kind.GUIDED:
            options["guided_decoding"] = {"regex": f"constraint {ask.context or len(self.census.kinds)}"}
        rivals = [visit for visit in self.world.visits if visit.ticket.is_probe and not visit.ticket.is_ended]
        visit = self.world.ask(caller=caller, max_tokens=ask.max_tokens, **options)
        if rivals:
            self.census.rivals.add(visit.id)
        self.census.asks[visit.id] = ask
        self.census.kinds[visit.id] = ask.kind
        self.census.constraints[visit.id] = options.get("guided_decoding", {}).get("regex")

    def _prepare(self, how: Preparing) -> None:
        preparer = self.engine.preparer
        if preparer.current is None:
            return
        if how is not Preparing.READY:
            self.census.unprepared.add(constraint_of(preparer.current))
        errors = {
            Preparing.READY: None,
            Preparing.INVALID: InvalidRequest("guided", "it", "another"),
            Preparing.BROKEN: ValueError("a grammar that broke its compiler"),
        }
        preparer.release(errors[how])

    def _engine_acts(self, action: Action) -> None:
        engine = self.engine
        match action:
            case SayAll():
                self._say_all(1)
            case Flood():
                for _ in range(BOUND_TOKENS // STEP_TOKENS + 1):
                    self._say_all(STEP_TOKENS)
            case Stranger():
                engine.emit(Delta(EngineId(2**40), [1], is_last=True))
            case RefuseNext():
                engine.refuses_next = True
            case Say(who=who) | EndChoice(who=who) | Finish(who=who) | Fail(who=who) | Spoil(who=who):
                engine_id = self._pick(tuple(engine.live), who)
                if engine_id is not None:
                    self._engine_acts_on(engine_id, action)

    def _say_all(self, tokens: int) -> None:
        engine = self.engine
        engine.emit(
            *(
                Delta(engine_id, engine.tokens(engine_id, index, tokens), index)
                for engine_id, spec in engine.live.items()
                for index in range(spec.n)
            )
        )

    def _engine_acts_on(self, engine_id: EngineId, action: Action) -> None:
        engine, n = self.engine, self.engine.live[engine_id].n
        match action:
            case Say(who=who, tokens=tokens):
                engine.emit(Delta(engine_id, engine.tokens(engine_id, who % n, tokens), who % n))
            case EndChoice(who=who):
                if len(engine.ended[engine_id]) + 1 < n:
                    index = who % n
                    engine.ended[engine_id].add(index)
                    engine.emit(Delta(engine_id, [], index, FinishReason.EOS))
            case Finish(tokens=tokens):
                self._finish(engine_id, tokens)
            case Fail():
                self.census.spoiled.add(engine_id)
                engine.fail(engine_id)
            case Spoil(flaw=flaw):
                self.census.spoiled.add(engine_id)
                engine.emit(flawed(engine_id, flaw, n))

    def _finish(self, engine_id: EngineId, tokens: int) -> None:
        self.census.finished.add(engine_id)
        self.engine.emit(*self.engine.last_deltas(engine_id, tokens))

    async def _read(self, who: int, chunks: int) -> None:
        visit = self._pick(self._readable(), who)
        for _ in range(chunks if visit is not None else 0):
            assert visit is not None
            outbox = visit.ticket.outbox
            if outbox.waiting_tokens or outbox.terminal is not None:
                await visit.reader.read()

    async def _pull(self, visit: Visit) -> None:
        try:
            await visit.reader.read()
        finally:
            self.census.pulling.discard(visit.id)

    async def _leave(self, who: int, way: Exit) -> None:
        # Those who are live, and the one who ended last: leaving after the end must be a no-op.
        ended = [visit for visit in self.world.visits if visit.ticket.is_ended][-1:]
        visit = self._pick([visit for visit in self.world.visits if not visit.ticket.is_ended] + ended, who)
        if visit is None:
            return
        self.census.left.add(visit.id)
        if way is not Exit.READER:
            visit.caller.leave()
        if way in {Exit.ABORT, Exit.TWICE}:
            # Namesakes that left before without telling anybody end now, too.
            await visit.leave()
        if way is Exit.SILENT and not visit.ticket.is_ended:
            # A reader that finds its context stopped says so and waits for the last word.
            self.world.graph.reader_gone(visit.ticket)
        if way in {Exit.READER, Exit.TWICE}:
            visit.close()

    async def _wait(self, seconds: float) -> None:
        """Time passes. An engine with work in hand is in one long step all the while."""
        ends_s = anyio.current_time() + seconds
        while (left_s := ends_s - anyio.current_time()) > 0:
            await anyio.sleep(min(left_s, HANG_S / 4))
            self.engine.progress += self.engine.is_owing

    async def _operate(self, action: Drain | Signal | Resume | Die | Hang | Crash) -> None:
        match action:
            case Drain(move_s=move_s, more_s=more_s):
                self._drain(move_s, move_s + more_s)
            case Signal():
                self.census.signals += 1
                self._drain(*((MOVE_S, DRAIN_S) if self.census.signals == 1 else (0.0, 0.0)))
            case Resume():
                self.world.graph.drain.resume()
                if self.world.graph.drain.state is WorkerState.SERVING:
                    self.census.signals = 0
            case Die():
                self.census.doom = EngineDead
                self.engine.die()
                await anyio.sleep_forever()
            case Hang():
                await self._hang()
            case Crash(part=part):
                self._crash(part)
                await anyio.sleep_forever()

    async def _hang(self) -> None:
        """Work in hand: found out in time. None: never, and whatever ends early meanwhile ends all the same.

        What is held back by its reader is no work until the reader is given up; then its abort is. Before the
        very first sign of life nobody calls an engine hung, and last words alone may be none: they may only
        confirm an abort.
        """
        await self.world.settle()
        self.engine.hang()
        began_s = anyio.current_time()
        soonest_s, latest_s = self.judge.first_work_s()
        if self.engine.live and self.engine.is_alive_for_certain:
            self.census.doom = EngineDead
        is_over = False
        try:
            await anyio.sleep(3 * (STALL_S + HANG_S))
            is_over = True
        finally:
            took_s = anyio.current_time() - began_s
            if self.engine.live and self.engine.steps and not is_over:
                self.census.doom = EngineDead
            if self.census.doom is not None:
                assert took_s <= latest_s + 1.1 * HANG_S + DUST_S
                # What was owed before the silence began may have been waited for since the last sign.
                assert took_s >= soonest_s + (HANG_S if soonest_s else HANG_S / 2) - DUST_S
        self.engine.is_confirming = True

    def _crash(self, part: Part) -> None:
        self.census.doom = ZeroDivisionError
        kind, handler = BROKEN_PARTS[part]
        (actor,) = [actor for actor in self.world.graph.actors if isinstance(actor, kind)]

        def broken(*_: object) -> None:
            raise ZeroDivisionError("a bug")

        setattr(actor, handler, broken)
        self._ask(Ask(Kind.PLAIN))
        # The executor holds on to its handler while it waits for a step.
        self.engine.emit()
        self.engine.emit()

    def _drain(self, move_s: float, end_s: float) -> None:
        drain = self.world.graph.drain
        now_s = anyio.current_time()
        move_s, end_s = now_s + move_s, now_s + end_s
        if drain.state is WorkerState.DRAINING and self.census.drain_ends_s is not None:
            self.census.drain_ends_s = min(end_s, self.census.drain_ends_s)
        else:
            self.census.drain_ends_s = end_s
        self.census.last_drained = self.world.graph.ledger.last_id
        drain.begin(DrainLadder(started_s=now_s, move_at_s=move_s, end_at_s=end_s))

    def _readable(self) -> list[Visit]:
        return [
            visit
            for visit in self.world.visits
            if visit.id not in self.census.pulling
            and not visit.ticket.outbox.is_drained
            and not visit.is_closed
        ]

    def _pick(self, those: Sequence[Any], who: int) -> Any:
        return those[who % len(those)] if those else None
