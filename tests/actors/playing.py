"""Acts a story out on the whole graph and checks, after every move, what is promised at all times."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import sniffio
import trio.lowlevel

from actors.cancellation import SWEEP_S, CancellationMonitor
from actors.drain import DrainLadder
from actors.executor import Executor
from actors.intake import RequestIntake
from actors.streamer import ChunkStreamer
from actors.supervisor import FutureWakeup
from actors.wakeup import EventWakeup
from protocols.errors import EngineDead, EngineShutdown, InvalidRequest, Overloaded
from protocols.steps import Delta, EngineId, FinishReason
from protocols.telemetry import Outcome, Phase, WorkerState
from tests.actors.deaths import check_one_death
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

STALL_S = 20.0
HANG_S = 10.0
DEADLINE_S = 2.5
# From the signal, as the service counts: when requests are moved, and when the rest is interrupted.
MOVE_S, DRAIN_S = 7.0, 10.0
_DUST_S = 1e-6
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


def living_tasks() -> int:
    """Tasks of trio, its own included; asyncio's are not counted."""
    if sniffio.current_async_library() != "trio":
        return 0
    return trio.lowlevel.current_statistics().tasks_living


class Player:
    """One story on one graph. `play` raises where a promise is broken."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.engine = StoryEngine(story)
        self.world: World
        self.new_wakeup: Callable[[], Wakeup] = EventWakeup
        self.kinds: dict[EngineId, Kind] = {}
        self.left: set[EngineId] = set()
        self.spoiled: set[EngineId] = set()
        # Constraints that were refused or broke something while they were prepared.
        self.unprepared: set[object] = set()
        self.constraints: dict[EngineId, object] = {}
        self.finished: set[EngineId] = set()
        self.pulling: set[EngineId] = set()
        # Tokens that lay in an outbox when everything was last at rest.
        self.waited: Counter[EngineId] = Counter()
        self.asks: dict[EngineId, Ask] = {}
        # Probes that came while another one was there.
        self.rivals: set[EngineId] = set()
        self.drain_ends_s: float | None = None
        self.last_drained = EngineId(0)
        self.signals = 0
        # What the graph is to die of, once it is.
        self.doom: type[Exception] | None = None
        self.tasks_when_open = 0

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
                await self.world.settle()
                self.tasks_when_open = living_tasks()
                for move in self.story.moves:
                    await self._act(move.action)
                    await self._turn(move.turns)
                    self._check(is_settled=move.turns is None)
                await self._come_to_rest()
                self.readers.cancel_scope.cancel()
        except* (EngineDead, ZeroDivisionError):
            assert self.doom is not None
            check_one_death(self.world, self.doom)
        else:
            assert self.doom is None
            assert self.world.crashes == []
        assert living_tasks() == tasks_before
        self.world.check_closed()
        for visit in self._readable():
            await visit.answer()
            assert visit.reader.terminals == 1
        self._check(is_settled=False)

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
            while visit.id in self.pulling:
                await self.world.settle()
        for visit in self._readable():
            await visit.answer()
        await self.world.settle()
        self._check(is_settled=True)
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
                    self.pulling.add(visit.id)
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
            options["guided_decoding"] = {"regex": f"constraint {ask.context or len(self.kinds)}"}
        rivals = [visit for visit in self.world.visits if visit.ticket.is_probe and not visit.ticket.is_ended]
        visit = self.world.ask(caller=caller, max_tokens=ask.max_tokens, **options)
        if rivals:
            self.rivals.add(visit.id)
        self.asks[visit.id] = ask
        self.kinds[visit.id] = ask.kind
        self.constraints[visit.id] = options.get("guided_decoding", {}).get("regex")

    def _prepare(self, how: Preparing) -> None:
        preparer = self.engine.preparer
        if preparer.current is None:
            return
        if how is not Preparing.READY:
            self.unprepared.add(constraint_of(preparer.current))
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
                self.spoiled.add(engine_id)
                engine.fail(engine_id)
            case Spoil(flaw=flaw):
                self.spoiled.add(engine_id)
                engine.emit(flawed(engine_id, flaw, n))

    def _finish(self, engine_id: EngineId, tokens: int) -> None:
        self.finished.add(engine_id)
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
            self.pulling.discard(visit.id)

    async def _leave(self, who: int, way: Exit) -> None:
        # Those who are live, and the one who ended last: leaving after the end must be a no-op.
        ended = [visit for visit in self.world.visits if visit.ticket.is_ended][-1:]
        visit = self._pick([visit for visit in self.world.visits if not visit.ticket.is_ended] + ended, who)
        if visit is None:
            return
        self.left.add(visit.id)
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
                self.signals += 1
                self._drain(*((MOVE_S, DRAIN_S) if self.signals == 1 else (0.0, 0.0)))
            case Resume():
                self.world.graph.drain.resume()
                if self.world.graph.drain.state is WorkerState.SERVING:
                    self.signals = 0
            case Die():
                self.doom = EngineDead
                self.engine.die()
                await anyio.sleep_forever()
            case Hang():
                await self._hang()
            case Crash(part=part):
                self._crash(part)
                await anyio.sleep_forever()

    async def _hang(self) -> None:
        """Work in hand: found out in time. None: never, and whatever ends early meanwhile ends all the same.

        What is held back by its reader is no work until the reader is given up; then its abort is.
        """
        await self.world.settle()
        self.engine.hang()
        began_s = anyio.current_time()
        soonest_s, latest_s = self._first_work_s()
        if self.engine.live and self.world.listener.steps:
            self.doom = EngineDead
        try:
            await anyio.sleep(3 * (STALL_S + HANG_S))
        finally:
            took_s = anyio.current_time() - began_s
            if self.doom is not None:
                assert took_s <= latest_s + 1.1 * HANG_S + _DUST_S
                # What was owed before the silence began may have been waited for since the last sign.
                assert took_s >= soonest_s + (HANG_S if soonest_s else HANG_S / 2) - _DUST_S
        self.engine.is_confirming = True

    def _first_work_s(self) -> tuple[float, float]:
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

    def _crash(self, part: Part) -> None:
        self.doom = ZeroDivisionError
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
        if drain.state is WorkerState.DRAINING and self.drain_ends_s is not None:
            self.drain_ends_s = min(end_s, self.drain_ends_s)
        else:
            self.drain_ends_s = end_s
        self.last_drained = self.world.graph.ledger.last_id
        drain.begin(DrainLadder(started_s=now_s, move_at_s=move_s, end_at_s=end_s))

    def _readable(self) -> list[Visit]:
        return [
            visit
            for visit in self.world.visits
            if visit.id not in self.pulling and not visit.ticket.outbox.is_drained and not visit.is_closed
        ]

    def _pick(self, those: Sequence[Any], who: int) -> Any:
        return those[who % len(those)] if those else None

    def _check(self, *, is_settled: bool) -> None:
        self.world.check_books()
        aborts = Counter(self.engine.ids_of("abort"))
        assert all(count == 1 for count in aborts.values())
        assert self.engine.most_running <= self.story.max_num_seqs
        reasons = [visit.ticket.cancel_reason for visit in self.world.visits]
        assert self.world.listener.cancellations.total() == len(reasons) - reasons.count(None)
        for visit in self.world.visits:
            self._check_visit(visit)
        if is_settled and self.doom is None:
            self._check_rest()

    def _check_visit(self, visit: Visit) -> None:
        said = self.engine.said.get(visit.id, [])
        reader, outcome = visit.reader, visit.ticket.outcome
        delivered = [(chunk["index"], token) for chunk in reader.chunks for token in chunk["token_ids"]]
        assert delivered == said[: len(delivered)]
        assert reader.terminals == (1 if visit.ticket.outbox.is_drained else 0)
        is_read = visit.ticket.outbox.is_drained and not (visit.is_closed or visit.ticket.is_reader_gone)
        if outcome is Outcome.COMPLETED and is_read:
            assert delivered == said
        if outcome is not None:
            self._check_outcome(visit, outcome)
        elif self.doom is None:
            self._check_due(visit)

    def _check_due(self, visit: Visit) -> None:
        """Whatever it waits for: nobody lives beyond a deadline or a stall, and the sweep after it."""
        now_s, most_s = anyio.current_time(), SWEEP_S * 2 + _DUST_S
        if self.asks[visit.id].has_deadline:
            assert now_s - visit.ticket.times.arrived_s <= DEADLINE_S + most_s
        if (since_s := visit.ticket.outbox.waiting_since_s) is not None:
            assert now_s - since_s <= STALL_S + most_s

    def _check_outcome(self, visit: Visit, outcome: Outcome) -> None:
        error = visit.ticket.outbox.terminal.error if visit.ticket.outbox.terminal else None
        kind = self.kinds[visit.id]
        is_wrong = kind in {Kind.INVALID, Kind.MALFORMED} or (
            kind is Kind.WIDE and self.story.max_num_seqs == 1
        )
        lived_s = self.world.listener.stories[visit.id].ended_s - visit.ticket.times.arrived_s
        match outcome:
            case Outcome.COMPLETED:
                # A busy engine answers for a probe by moving on.
                assert visit.id in self.finished or (visit.ticket.is_probe and self.world.listener.steps)
                reasons = self.world.listener.stories[visit.id].finish_reasons
                assert all(reasons[index] == "eos" for index in self.engine.ended.get(visit.id, ()))
            case Outcome.CANCELLED | Outcome.STOPPED_BY_FRONTEND:
                assert visit.id in self.left
                assert outcome is Outcome.CANCELLED or kind is Kind.STOPS
            case Outcome.DEADLINE:
                assert self.asks[visit.id].has_deadline
                assert DEADLINE_S - _DUST_S <= lived_s <= DEADLINE_S + SWEEP_S + _DUST_S
            case Outcome.STALLED:
                assert lived_s >= STALL_S - _DUST_S
            case Outcome.INTERRUPTED:
                assert visit.id <= self.last_drained
            case Outcome.REFUSED:
                is_refused = kind is Kind.GUIDED and self.constraints[visit.id] in self.unprepared
                assert isinstance(error, Overloaded | EngineShutdown) or is_wrong or is_refused
                # One place is kept for a probe.
                is_crowded = isinstance(error, Overloaded) and error.reason == "max_live"
                assert not (is_crowded and visit.ticket.is_probe) or visit.id in self.rivals
            case Outcome.FAILED:
                is_refused = (
                    visit.id in self.engine.ids_of("submit") and visit.id not in self.engine.submitted
                ) or self.constraints[visit.id] in self.unprepared
                assert self.doom is not None or visit.id in self.spoiled or is_refused
        assert not is_wrong or visit.id not in self.engine.submitted

    def _check_rest(self) -> None:
        """What holds whenever nothing can move without time passing."""
        world, story = self.world, self.story
        world.check_lanes(except_for="resolver_parked" if self.engine.preparer.is_busy else None)
        if self.tasks_when_open:
            assert living_tasks() == self.tasks_when_open + len(self.pulling)
        assert world.graph.executor.running_sequences == self.engine.running <= story.max_num_seqs
        if world.graph.drain.state is WorkerState.DRAINED:
            assert world.graph.ledger.is_empty
        if world.graph.drain.state is WorkerState.DRAINING and self.drain_ends_s is not None:
            assert anyio.current_time() < self.drain_ends_s
        self._check_waiting_room()
        for visit in world.visits:
            self._check_bound(visit)
            # Only those whose grammar is being prepared, or who wait for their turn at that, are held up.
            if visit.ticket.phase is Phase.RESOLVING:
                assert self.engine.preparer.is_busy
                assert self.kinds[visit.id] is Kind.GUIDED
            # Whoever else is slow: what the engine has said of a request lies before its reader.
            if visit.id in self.engine.live and not visit.ticket.is_ended:
                assert len(visit.reader.tokens) + visit.ticket.outbox.waiting_tokens == len(
                    self.engine.said[visit.id]
                )
        self.engine.fresh.clear()

    def _check_waiting_room(self) -> None:
        """Nobody waits for a slot that is free: at most, those are kept free that a large one needs."""
        sizes = [visit.ticket.n for visit in self.world.visits if visit.ticket.phase is Phase.WAITING]
        assert len(sizes) == self.world.graph.executor.waiting_requests
        free = self.story.max_num_seqs - self.engine.running
        assert not sizes or max(sizes) > free

    def _check_bound(self, visit: Visit) -> None:
        """No outbox above its bound and one step, or what was said before anybody could say stop."""
        outbox, can_pause = visit.ticket.outbox, self.story.can_pause
        most = outbox.bound_tokens
        if can_pause:
            most += max(STEP_TOKENS, self.engine.fresh[visit.id])
        assert outbox.waiting_tokens <= max(most, self.waited[visit.id])
        self.waited[visit.id] = outbox.waiting_tokens
        if can_pause and not visit.ticket.is_ended and visit.id in self.engine.live:
            assert (visit.id in self.engine.paused) == outbox.is_held
