"""The graph around the driver on its double: what users have reported is asked again."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import anyio

from actors.engines.trtllm import TrtllmEngine
from tests.actors.world import Visit, World, open_world
from tests.doubles.callers import Reader
from tests.doubles.trtllm_llms import changed_environ
from tests.doubles.trtllm_site import SCRIPT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from actors.engines.trtllm import TrtllmConfig

PATIENCE_S = 20.0


@asynccontextmanager
async def open_reports(
    config: TrtllmConfig, script: Mapping[str, Any] | None = None, **settings: Any
) -> AsyncIterator[World]:
    """The graph is at rest and its books balance at the end."""
    engine = TrtllmEngine(config)
    changes = {SCRIPT: json.dumps(script or {}), "DOUBLE_STEP_MS": "2"}
    with changed_environ(changes):
        async with open_world(cast("Any", engine), **settings) as world:
            yield world
            with anyio.fail_after(PATIENCE_S):
                while not (world.graph.executor.is_idle and world.graph.ledger.is_empty):
                    await world.settle()


async def answer(visit: Visit) -> Reader:
    """All of it, in bounded time."""
    with anyio.fail_after(PATIENCE_S):
        return await visit.answer()


async def ask(world: World, prompt: Any = (1, 15, 27, 33), **options: Any) -> Reader:
    """One request from its beginning to its end."""
    return await answer(world.ask(prompt=prompt, **options))


async def check_next(world: World) -> None:
    """The worker is unharmed: a plain request is served."""
    served = await ask(world, max_tokens=4)
    assert served.tokens == [1000, 1001, 1002, 1003]
    assert served.finish_reasons == ["length"]


def arrived(journal: Path) -> list[dict[str, Any]]:
    """What the engine's process has been given, in order."""
    return [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()]
