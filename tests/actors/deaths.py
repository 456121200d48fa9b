"""Graphs that break, and what all of them look like afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from protocols.telemetry import WorkerState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.actors.world import World
    from tests.conftest import OpenWorld
    from tests.doubles.engines import ScriptedEngine


async def crash(
    open_world: OpenWorld,
    live: Callable[[World], Awaitable[None]],
    engine: ScriptedEngine | None = None,
    **bounds: Any,
) -> World:
    """A graph that breaks while, or after, ``live`` has run in it; what is left of it."""
    worlds: list[World] = []

    async def break_down() -> None:
        async with open_world(engine, **bounds) as world:
            worlds.append(world)
            await live(world)
            await anyio.sleep_forever()

    with pytest.raises(ExceptionGroup):
        await break_down()
    return worlds[0]


def causes(exc: BaseException) -> list[BaseException]:
    """What lies at the ends of a group of groups."""
    if isinstance(exc, BaseExceptionGroup):
        return [cause for inner in exc.exceptions for cause in causes(inner)]
    return [exc]


def check_one_death(world: World, kind: type[BaseException]) -> None:
    """Told once, with the cause; failed, then stopping; nobody waits any more."""
    assert len(world.crashes) == 1
    assert [type(cause) for cause in causes(world.crashes[0])] == [kind]
    assert world.listener.states[-2:] == [WorkerState.FAILED, WorkerState.STOPPING]
    assert world.engine.stops == 1
    assert all(visit.ticket.is_ended for visit in world.visits)
