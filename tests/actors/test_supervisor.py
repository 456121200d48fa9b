"""Promises of the supervisor, on both loops of asyncio: one task owns what is open, callers come and go."""

from __future__ import annotations

import asyncio
import contextvars
import gc
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from actors.graph import open_graph
from actors.settings import GraphSettings
from actors.supervisor import FutureWakeup, Supervisor
from actors.surroundings import Surroundings
from protocols.errors import EngineDead, EngineShutdown, EngineStartError, StartStopped
from tests.doubles.callers import FakeCaller, Reader, wire_request
from tests.doubles.engines import FailsToStart, ScriptedEngine, SlowStart, SteppingEngine
from tests.doubles.listeners import RecordingTelemetry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from actors.graph import Graph

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, object]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


class Place:
    """Something to hold open: remembers who opened and who closed it, and can be made to fail."""

    def __init__(self) -> None:
        self.opened_by: asyncio.Task[Any] | None = None
        self.closed_by: asyncio.Task[Any] | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.closing = asyncio.Event()
        self.may_close = asyncio.Event()
        self.may_close.set()
        self.breaks: Exception | None = None
        self.break_now = asyncio.Event()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Place]:
        self.opened_by = asyncio.current_task()
        await self.gate.wait()
        if self.breaks is not None and not self.break_now.is_set():
            raise self.breaks
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._break)
                yield self
                tasks.cancel_scope.cancel()
        finally:
            self.closing.set()
            with anyio.CancelScope(shield=True):
                await self.may_close.wait()
            self.closed_by = asyncio.current_task()

    async def _break(self) -> None:
        await self.break_now.wait()
        raise self.breaks or AssertionError("nothing to break")

    def break_later(self, exc: Exception) -> None:
        self.breaks = exc
        self.break_now.set()


async def turns(count: int = 5) -> None:
    """Let the loop go round."""
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.fixture
async def place() -> Place:
    return Place()


class TestLife:
    async def test_it_is_opened_and_closed_by_one_task(self, place: Place) -> None:
        """Whoever calls start() and stop(): a task group must be left by the task that entered it."""
        supervisor = Supervisor(place.open)
        assert await asyncio.create_task(supervisor.start()) is place
        await asyncio.create_task(supervisor.stop())
        assert place.opened_by is not None
        assert place.opened_by is place.closed_by
        assert place.opened_by is not asyncio.current_task()
        assert supervisor.failure is None

    async def test_context_of_the_starter_stays_outside(self, place: Place) -> None:
        """Spans of the start-up are no parents of what runs for years."""
        variable: contextvars.ContextVar[str] = contextvars.ContextVar("span", default="none")
        seen: list[str] = []

        @asynccontextmanager
        async def open_it() -> AsyncIterator[None]:
            seen.append(variable.get())
            yield

        variable.set("start-up")
        supervisor = Supervisor(open_it)
        await supervisor.start()
        await supervisor.stop()
        assert seen == ["none"]

    async def test_a_second_start_is_refused(self, place: Place) -> None:
        """One life each."""
        supervisor = Supervisor(place.open)
        await supervisor.start()
        with pytest.raises(RuntimeError, match="already"):
            await supervisor.start()
        await supervisor.stop()

    async def test_a_failed_start_raises_what_failed(self, place: Place) -> None:
        """As it was, kept as the failure; stop() has nothing left to do."""
        place.breaks = EngineStartError("no such model")
        supervisor = Supervisor(place.open)
        with pytest.raises(EngineStartError, match="no such model"):
            await supervisor.start()
        assert supervisor.failure is place.breaks
        await supervisor.stop()

    async def test_a_crash_later_is_kept_and_closes(self, place: Place) -> None:
        """Nobody needs to be waiting for it."""
        supervisor = Supervisor(place.open)
        await supervisor.start()
        place.break_later(EngineDead("gone"))
        await place.closing.wait()
        await supervisor.stop()
        assert isinstance(supervisor.failure, ExceptionGroup)
        assert supervisor.failure.subgroup(EngineDead) is not None
        assert place.closed_by is place.opened_by

    async def test_a_cancelled_start_leaves_it_open_until_stop(self, place: Place) -> None:
        """The framework owes us the stop; nothing is lost in between."""
        place.gate.clear()
        supervisor = Supervisor(place.open)
        start = asyncio.create_task(supervisor.start())
        await turns()
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start
        place.gate.set()
        await turns()
        assert place.closed_by is None
        await supervisor.stop()
        assert place.closed_by is place.opened_by

    async def test_a_cancelled_start_that_fails_later_warns_nobody(self, place: Place) -> None:
        """Its exception is seen, although nobody fetches it."""
        complaints: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, complaint: complaints.append(complaint))
        place.gate.clear()
        place.breaks = EngineStartError("late")
        supervisor = Supervisor(place.open)
        start = asyncio.create_task(supervisor.start())
        await turns()
        start.cancel()
        await asyncio.wait({start})
        place.gate.set()
        await supervisor.stop()
        assert supervisor.failure is place.breaks
        # Whoever holds the failure holds the future, too.
        del start, supervisor
        place.breaks = None
        gc.collect()
        assert complaints == []

    async def test_a_cancelled_stop_closes_all_the_same(self, place: Place) -> None:
        """The caller gives up waiting; the closing goes on."""
        supervisor = Supervisor(place.open)
        await supervisor.start()
        place.may_close.clear()
        stop = asyncio.create_task(supervisor.stop())
        await place.closing.wait()
        stop.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stop
        place.may_close.set()
        await supervisor.stop()
        assert place.closed_by is place.opened_by
        assert supervisor.failure is None

    async def test_two_stops_at_once(self, place: Place) -> None:
        """Both return when it is closed, and not before."""
        supervisor = Supervisor(place.open)
        await supervisor.start()
        place.may_close.clear()
        stops = [asyncio.create_task(supervisor.stop()) for _ in range(2)]
        await place.closing.wait()
        await turns()
        assert not any(stop.done() for stop in stops)
        place.may_close.set()
        await asyncio.gather(*stops)
        assert place.closed_by is place.opened_by

    async def test_a_stop_without_a_start(self, place: Place) -> None:
        """Nothing was opened, nothing is."""
        supervisor = Supervisor(place.open)
        await supervisor.stop()
        assert place.opened_by is None

    async def test_a_stop_before_the_start_has_opened(self, place: Place) -> None:
        """It opens, and closes at once."""
        place.gate.clear()
        supervisor = Supervisor(place.open)
        start = asyncio.create_task(supervisor.start())
        await turns()
        stop = asyncio.create_task(supervisor.stop())
        await turns()
        place.gate.set()
        await asyncio.gather(start, stop)
        assert place.closed_by is place.opened_by


class TestInterrupt:
    @pytest.mark.parametrize("wait", [0, 5])
    async def test_an_opening_is_given_up(self, place: Place, wait: int) -> None:
        """Also before its first step; the starter gets a typed answer."""
        place.gate.clear()
        supervisor = Supervisor(place.open)
        start = asyncio.create_task(supervisor.start())
        await turns(1 + wait)
        supervisor.interrupt()
        supervisor.interrupt()
        with pytest.raises(StartStopped):
            await start
        await supervisor.stop()
        assert place.closed_by is None

    async def test_in_the_last_moment_it_is_still_one_of_the_start(self, place: Place) -> None:
        """All is open, nobody was told yet: the start fails as interrupted, and what was open is closed."""

        @asynccontextmanager
        async def open_and_be_asked() -> AsyncIterator[Place]:
            async with place.open() as opened:
                asyncio.get_running_loop().call_soon(supervisor.interrupt)
                yield opened

        supervisor = Supervisor(open_and_be_asked)
        with pytest.raises(StartStopped):
            await supervisor.start()
        await supervisor.stop()
        assert place.closed_by is not None

    async def test_without_a_start_it_does_nothing(self, place: Place) -> None:
        """Nothing to give up."""
        Supervisor(place.open).interrupt()
        assert place.opened_by is None


class TestWhileOpen:
    async def test_work_that_ends_is_its_result(self, place: Place) -> None:
        """The ordinary case."""
        supervisor = Supervisor(place.open)
        await supervisor.start()

        async def work() -> int:
            await turns()
            return 7

        assert await supervisor.while_open(work()) == 7
        await supervisor.stop()

    async def test_work_that_raises_raises(self, place: Place) -> None:
        """Its own exception, not None."""
        supervisor = Supervisor(place.open)
        await supervisor.start()

        async def work() -> None:
            raise ValueError("mine")

        with pytest.raises(ValueError, match="mine"):
            await supervisor.while_open(work())
        await supervisor.stop()

    async def test_work_that_a_crash_overtakes_is_none(self, place: Place) -> None:
        """A drain of a graph that broke does not wait for ever."""
        supervisor = Supervisor(place.open)
        await supervisor.start()
        never = asyncio.create_task(supervisor.while_open(asyncio.Event().wait()))
        await turns()
        place.break_later(EngineDead("gone"))
        assert await never is None
        assert await supervisor.while_open(asyncio.Event().wait()) is None
        await supervisor.stop()


async def sleep(wakeup: FutureWakeup) -> None:
    await wakeup.wait()


class TestFutureWakeup:
    async def test_it_wakes_one_sleeper(self) -> None:
        """Once it sleeps; a wake-up before that may be forgotten, the reader looks first."""
        wakeup = FutureWakeup()
        wakeup.set()
        sleeper = asyncio.create_task(sleep(wakeup))
        await turns()
        assert not sleeper.done()
        wakeup.set()
        wakeup.set()
        await sleeper

    async def test_a_cancelled_sleeper_leaves_nothing_behind(self) -> None:
        """The next one sleeps and wakes as usual."""
        wakeup = FutureWakeup()
        sleeper = asyncio.create_task(sleep(wakeup))
        await turns()
        sleeper.cancel()
        wakeup.set()
        await asyncio.wait({sleeper})
        again = asyncio.create_task(sleep(wakeup))
        await turns()
        wakeup.set()
        await again


class TestGraph:
    """The real thing inside the supervisor, as the service runs it."""

    def supervise(
        self, engine: ScriptedEngine, crashes: list[BaseException] | None = None
    ) -> tuple[Supervisor[Graph], RecordingTelemetry]:
        listener = RecordingTelemetry()
        around = Surroundings(
            engine=engine,
            telemetry=listener,
            clock=anyio.current_time,
            on_crash=(crashes if crashes is not None else []).append,
            new_wakeup=FutureWakeup,
        )
        return Supervisor(lambda: open_graph(GraphSettings(), around)), listener

    async def test_requests_are_served(self) -> None:
        """Every step of every reader in a task of its own, as the framework reads."""
        supervisor, listener = self.supervise(SteppingEngine(step_s=0.0))
        graph = await supervisor.start()
        tickets = [graph.submit(FakeCaller(), wire_request(max_tokens=20)) for _ in range(8)]
        readers = [Reader(ticket.outbox) for ticket in tickets]
        for ticket, reader in zip(tickets, readers, strict=True):
            while not ticket.outbox.is_drained:
                await asyncio.create_task(reader.read())
        assert all(reader.tokens == list(range(1000, 1020)) for reader in readers)
        await supervisor.stop()
        assert sum(listener.outcomes.values()) == 8
        assert supervisor.failure is None

    async def test_a_dead_engine_ends_requests_and_is_told_once(self) -> None:
        """Readers get the word that moves them; the failure is kept with its cause."""
        engine, crashes = ScriptedEngine(), list[BaseException]()
        supervisor, _ = self.supervise(engine, crashes)
        graph = await supervisor.start()
        ticket = graph.submit(FakeCaller(), wire_request())
        reading = asyncio.create_task(Reader(ticket.outbox).read_to_end())
        await turns()
        engine.die()
        assert isinstance((await reading).error, EngineShutdown)
        await supervisor.stop()
        assert len(crashes) == 1
        assert isinstance(supervisor.failure, ExceptionGroup)
        assert engine.stops == 1

    async def test_an_engine_that_cannot_start(self) -> None:
        """Its own error at start(); stopped once."""
        engine = FailsToStart()
        supervisor, _ = self.supervise(engine)
        with pytest.raises(EngineStartError):
            await supervisor.start()
        await supervisor.stop()
        assert engine.stops == 1

    async def test_a_start_that_is_interrupted_stops_the_engine(self) -> None:
        """Loading ends, the engine is stopped, the starter gets a typed answer."""
        engine = SlowStart(600.0)
        supervisor, _ = self.supervise(engine)
        start = asyncio.create_task(supervisor.start())
        await turns(20)
        supervisor.interrupt()
        with pytest.raises(StartStopped):
            await start
        await supervisor.stop()
        assert engine.stops == 1
