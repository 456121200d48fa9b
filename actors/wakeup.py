"""Waking the one reader of an outbox: the seam that lets the graph run on trio and asyncio alike.

The service uses a bare loop future (a fifth of the price of an event, see docs/performance.md); tests
under a fake clock use the anyio form. There is one reader at a time, and the reader looks at its
condition before it waits, so a wake-up that comes early may be forgotten.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

import anyio


class Wakeup(Protocol):
    """One sleeper, many wakers, one thread."""

    def set(self) -> None:
        """Wake the reader if it sleeps."""
        ...

    def wait(self) -> Awaitable[None]:
        """Sleep until `set`: await it at once, and once. A cancelled wait leaves nothing behind."""
        ...


class EventWakeup:
    """Works on every anyio backend."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event: anyio.Event | None = None

    def set(self) -> None:
        if self._event is not None:
            self._event.set()

    async def wait(self) -> None:
        self._event = anyio.Event()
        try:
            await self._event.wait()
        finally:
            self._event = None
