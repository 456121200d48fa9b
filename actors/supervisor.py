"""Supervisor: holds the graph open in one task, for callers that come and go in tasks of their own.

The framework calls ``start()`` and ``cleanup()`` from different tasks, and a task group must be
left by the task that entered it. This file may import asyncio for that reason.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar

from protocols.errors import StartStopped

T = TypeVar("T")
R = TypeVar("R")

_INTERRUPTED = "the start was interrupted"


class FutureWakeup:
    """The cheap form of `actors.wakeup.Wakeup`: one bare future per wait (asyncio only). Made in its loop."""

    __slots__ = ("_future", "_loop")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Wake the reader if it sleeps."""
        future = self._future
        if future is not None and not future.done():
            future.set_result(None)

    def wait(self) -> Awaitable[None]:
        """Sleep until `set`. What is left of an earlier wait is done, so nobody wakes it."""
        self._future = self._loop.create_future()
        return self._future


class Supervisor(Generic[T]):
    """Owns an ``async with``. ``failure`` keeps what broke it, in its start or later."""

    def __init__(self, open_it: Callable[[], AbstractAsyncContextManager[T]]) -> None:
        self._open_it = open_it
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_interrupted = False
        self.failure: BaseException | None = None

    async def start(self) -> T:
        """Open it. Raises what opening raised; RuntimeError on a second call.

        A cancelled call leaves the supervisor running until `stop`, which the framework owes us.
        """
        if self._task is not None:
            raise RuntimeError("start() was already called")
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[T] = loop.create_future()
        # An empty context keeps spans and variables of the starting task out of the actors.
        self._task = loop.create_task(
            self._hold_open(ready), name="supervisor", context=contextvars.Context()
        )
        either: set[asyncio.Future[Any]] = {ready, self._task}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done() or (self._is_interrupted and ready.exception() is None):
            # Before its first step: a task that was cancelled that early never runs. Or in the last moment,
            # when all was open: it is closing again.
            raise StartStopped(_INTERRUPTED)
        return ready.result()

    async def stop(self) -> None:
        """Close it and wait. Any task, any number of times, also before or after a failed start."""
        self._stop.set()
        if self._task is not None:
            await asyncio.wait({self._task})

    async def while_open(self, work: Coroutine[Any, Any, R]) -> R | None:
        """Do something with what is open; None when it broke or closed before that was done."""
        if self._task is None or self._task.done():
            work.close()
            return None
        task = asyncio.get_running_loop().create_task(work)
        try:
            await asyncio.wait({task, self._task}, return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            task.cancel()

    def interrupt(self) -> None:
        """Give up an opening that is still under way; `stop` then does not wait for it to finish.

        Once is enough: a second cancel would cut the closing short, and leave children of the engine behind.
        """
        if self._task is not None and not self._is_interrupted:
            self._is_interrupted = True
            self._task.cancel()

    async def _hold_open(self, ready: asyncio.Future[T]) -> None:
        try:
            async with self._open_it() as opened:
                ready.set_result(opened)
                await self._stop.wait()
        except BaseException as exc:
            self._note(exc, ready)
            if not isinstance(exc, Exception | BaseExceptionGroup):
                raise

    def _note(self, exc: BaseException, ready: asyncio.Future[T]) -> None:
        self.failure = exc
        if not ready.done():
            ready.set_exception(exc if isinstance(exc, Exception) else StartStopped(_INTERRUPTED))
            # Seen, even if start() was cancelled and nobody will fetch it.
            ready.exception()
