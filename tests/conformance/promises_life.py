"""What an engine promises about its start and its stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import pytest

from protocols.errors import EngineDead, StartStopped
from tests.conformance.reader import EngineReader, make_spec

if TYPE_CHECKING:
    from collections.abc import Callable

    from protocols.engine import Engine, EngineInfo

# "Within a bounded time": what the worker's own stop budget allows an engine.
STOP_LIMIT_S = 10.0
# Four undelivered steps are allowed.
MORE_THAN_UNDELIVERED = 5


async def stop(engine: Engine) -> None:
    """Stop within the bound."""
    with anyio.fail_after(STOP_LIMIT_S):
        await engine.stop()


async def read_steps(reader: EngineReader, steps: int) -> None:
    for _ in range(steps):
        await reader.read_step()


class LifePromises:
    """Start, stop, and everything that can come between."""

    async def test_it_says_what_it_is(self, make_engine: Callable[[], Engine]) -> None:
        """Name and capabilities are known before the start, the sizes after it."""
        engine = make_engine()
        assert engine.name
        assert engine.capabilities.max_n >= 1
        info = await engine.start()
        await stop(engine)
        assert info.model
        assert info.context_length > 1
        assert info.max_num_seqs >= 1
        assert info.vocab_size > 1
        assert info.description

    async def test_stop_is_idempotent(self, make_engine: Callable[[], Engine]) -> None:
        """A second stop, later or at the same time, is harmless."""
        engine = make_engine()
        await engine.start()
        async with anyio.create_task_group() as stops:
            stops.start_soon(stop, engine)
            stops.start_soon(stop, engine)
        await stop(engine)

    async def test_stop_without_start(self, make_engine: Callable[[], Engine]) -> None:
        """An engine that never started stops as well, any number of times."""
        engine = make_engine()
        await stop(engine)
        await stop(engine)

    async def test_start_after_stop(self, make_engine: Callable[[], Engine]) -> None:
        """A stopped engine does not start."""
        engine = make_engine()
        await stop(engine)
        with pytest.raises(StartStopped):
            await engine.start()
        await stop(engine)

    @pytest.mark.parametrize("turns", [0, 1, 5])
    async def test_stop_during_start(self, make_engine: Callable[[], Engine], turns: int) -> None:
        """A stop that comes while the engine loads ends the start: it says so, or was too late."""
        engine = make_engine()
        outcomes: list[EngineInfo | StartStopped] = []

        async def start() -> None:
            try:
                outcomes.append(await engine.start())
            except StartStopped as exc:
                outcomes.append(exc)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(start)
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            await stop(engine)
        assert len(outcomes) == 1

    async def test_cancelled_start(self, make_engine: Callable[[], Engine]) -> None:
        """A start that is cancelled leaves an engine that stops."""
        engine = make_engine()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.start)
            await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        await stop(engine)

    async def test_stop_with_work_in_flight(self, make_engine: Callable[[], Engine]) -> None:
        """A busy engine stops in bounded time; after the steps already made it is dead."""
        engine = make_engine()
        reader = EngineReader(engine, await engine.start())
        for _ in range(reader.info.max_num_seqs + 1):
            reader.submit(make_spec(max_tokens=reader.info.context_length - 3))
        await reader.read_step()
        await stop(engine)
        for _ in range(2):  # and stays dead
            with pytest.raises(EngineDead):
                await read_steps(reader, MORE_THAN_UNDELIVERED)

    async def test_stop_ends_a_wait(self, make_engine: Callable[[], Engine]) -> None:
        """Whoever waits for a step of an idle engine is told that none will come."""
        engine = make_engine()
        await engine.start()
        outcomes: list[str] = []

        async def wait() -> None:
            with anyio.fail_after(STOP_LIMIT_S):
                try:
                    await engine.next_step()
                except EngineDead:
                    outcomes.append("dead")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            await stop(engine)
        assert outcomes == ["dead"]

    async def test_calls_after_stop_are_harmless(self, make_engine: Callable[[], Engine]) -> None:
        """A graph that has not noticed the stop yet can still submit and abort."""
        engine = make_engine()
        reader = EngineReader(engine, await engine.start())
        await stop(engine)
        heard = reader.submit(make_spec())
        engine.abort(heard.engine_id)
        with pytest.raises(EngineDead):
            await reader.read_step()
