"""Foreign work that must not be waited for too long, each piece on a daemon thread of its own.

Not an executor: its threads would hold up the exit of the process, and one that is stuck would hold up
all the work behind it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class TookTooLong(Exception):
    """The work goes on, and nobody will hear of it."""


class TooManyStuck(Exception):
    """So many threads are still with work that nobody waits for that no other is started.

    Also where the system starts none.
    """


class ForeignFailure(Exception):
    """Something that is no ``Exception`` was raised, such as the panic of a library in another language."""


class ImpatientThreads:
    """Event loop. ``most``: threads that may be at work at once, those that nobody waits for included."""

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._most = most
        self._lock = threading.Lock()
        self._at_work = 0

    async def run(self, work: Callable[[], T], limit_s: float) -> T:
        """What ``work`` returns or raises. Raises TookTooLong, TooManyStuck, ForeignFailure.

        Cancelling the call loses the result only.
        """
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[T] = loop.create_future()
        self._start(threading.Thread(target=self._work, args=(work, outcome, loop), daemon=True))
        try:
            await asyncio.wait({outcome}, timeout=limit_s)
            if not outcome.done():
                raise TookTooLong
            return outcome.result()
        finally:
            outcome.cancel()

    def _start(self, thread: threading.Thread) -> None:
        thread.name = self._name
        with self._lock:
            if self._at_work >= self._most:
                raise TooManyStuck
            self._at_work += 1
        try:
            thread.start()
        except RuntimeError as exc:
            with self._lock:
                self._at_work -= 1
            raise TooManyStuck from exc

    def _work(
        self, work: Callable[[], T], outcome: asyncio.Future[T], loop: asyncio.AbstractEventLoop
    ) -> None:
        """The thread."""
        settle: Callable[..., None] = outcome.set_result
        result: Any = None
        try:
            result = work()
        except Exception as exc:
            settle, result = outcome.set_exception, exc
        except BaseException as exc:
            failure = ForeignFailure(type(exc).__name__)
            failure.__cause__ = exc
            settle, result = outcome.set_exception, failure
        with self._lock:
            self._at_work -= 1
        try:
            loop.call_soon_threadsafe(_settle, outcome, settle, result)
        except RuntimeError:
            # The loop is closed: nobody waits.
            return


def _settle(outcome: asyncio.Future[T], settle: Callable[..., None], result: object) -> None:
    """In the loop: whoever waited may have gone."""
    if not outcome.done():
        settle(result)
