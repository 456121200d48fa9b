"""Bounded, directed channels, and the two cheap ways of using them.

A send or receive that awaits costs a turn of the loop whatever the buffer; the ``nowait`` forms
cost a tenth of it on a burst. So we try first and wait only when there is something to wait for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Generic, NamedTuple, TypeVar

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

T = TypeVar("T")


class Mailbox(NamedTuple):
    """For the gauges: who reads it, how much waits, how much fits."""

    actor: str
    waiting: int
    capacity: int


async def send(lane: MemoryObjectSendStream[T], message: T, on_full: Callable[[], None]) -> None:
    """Put a message into a lane; wait only when the lane is full. ``on_full`` is called before that.

    Without a reader it waits for the end: readers leave by dying, the graph is about to be cancelled
    for that, and the cause is theirs to tell.
    """
    try:
        try:
            lane.send_nowait(message)
        except anyio.WouldBlock:
            on_full()
            await lane.send(message)
    except anyio.BrokenResourceError:
        await anyio.sleep_forever()


class _Received(Generic[T]):
    """Not a generator: a loop that is left by an exception would leave one suspended behind."""

    __slots__ = ("_lane",)

    def __init__(self, lane: MemoryObjectReceiveStream[T]) -> None:
        self._lane = lane

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        try:
            return self._lane.receive_nowait()
        except anyio.WouldBlock:
            return await self._lane.__anext__()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


def receive_all(lane: MemoryObjectReceiveStream[T]) -> AsyncIterator[T]:
    """Messages until the writer closes its end; those that wait are taken without another turn."""
    return _Received(lane)
