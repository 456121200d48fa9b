"""How a response gets from the dispatch thread to whoever reads the result.

The result is bound to the event loop it was made in: an `AsyncQueue` wakes readers in that loop, and its sync
side is for threads. Reading the sync side in the loop's own thread would never end, and is refused here.
"""

from __future__ import annotations

import asyncio
import queue
from typing import Generic, TypeVar

T = TypeVar("T")


class AsyncQueue(Generic[T]):
    """Filled by any thread through `sync_q`, read in the loop that was running when it was made."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[T] = asyncio.Queue()
        self.sync_q = SyncQueue(self)

    async def get(self, timeout: float | None = None) -> T:
        """Wait for the next item. Raises TimeoutError."""
        return await asyncio.wait_for(self._queue.get(), timeout)

    def put_in_loop(self, item: T) -> None:
        """Loop only."""
        self._queue.put_nowait(item)


class SyncQueue(Generic[T]):
    """The side of an `AsyncQueue` that threads use."""

    def __init__(self, owner: AsyncQueue[T]) -> None:
        self._owner = owner

    def put(self, item: T) -> None:
        """Any thread. When the loop is closed nobody will read it, and it is dropped."""
        try:
            self._owner.loop.call_soon_threadsafe(self._owner.put_in_loop, item)
        except RuntimeError:
            return

    def get(self, timeout: float | None = None) -> T:
        """Any thread but the loop's. Raises TimeoutError; RuntimeError where waiting would never end."""
        if _running_loop() is self._owner.loop:
            raise RuntimeError("a result that was made in an event loop is not read by blocking that loop")
        return asyncio.run_coroutine_threadsafe(self._owner.get(timeout), self._owner.loop).result()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def queues_here() -> tuple[SyncQueue[object] | queue.Queue[object], AsyncQueue[object] | None]:
    """The queue to fill, and the one to await: None where no loop is running."""
    if _running_loop() is None:
        return queue.Queue(), None
    aqueue: AsyncQueue[object] = AsyncQueue()
    return aqueue.sync_q, aqueue
