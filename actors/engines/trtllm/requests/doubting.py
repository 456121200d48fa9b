"""Requests that the library would not take, until it is known whether it has died of something meanwhile.

A process that has ended is noticed a moment later. Who is refused in that moment could be served elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from actors.engines.trtllm.answers.collecting import StepCollector
from protocols.steps import Delta, EngineId


class Doubts:
    """Event loop only. look: at the engine's health, in bounded time; the cause of its death, if it is dead.

    on_dead: told then, and everybody who is live hears of it: nothing more is said of one request.
    """

    def __init__(
        self,
        look: Callable[[], Awaitable[BaseException | None]],
        steps: StepCollector,
        on_dead: Callable[[BaseException], None],
    ) -> None:
        self._look = look
        self._steps = steps
        self._on_dead = on_dead
        self._tasks: set[asyncio.Task[None]] = set()

    def refused(self, engine_id: EngineId, kind: str) -> None:
        """One whose call has raised. kind: the type of that. It gets its last word, or everybody does."""
        task = asyncio.get_running_loop().create_task(
            self._judge(engine_id, kind), name=f"trtllm-doubt-{engine_id}"
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Nobody hears the engine any more."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _judge(self, engine_id: EngineId, kind: str) -> None:
        cause = await self._look()
        if cause is not None:
            self._on_dead(cause)
            return
        error = f"the engine refused the request ({kind})"
        self._steps.say([Delta(engine_id, [], is_last=True, error=error)])
