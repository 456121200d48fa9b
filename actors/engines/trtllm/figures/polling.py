"""A thread around a call that blocks, as TensorRT-LLM gives its statistics and KV events out.

Such a call goes over to the engine's process and waits there, so it must not be made in the event loop.
What it says arrives there in order, a batch a turn. However the call behaves, the thread goes on, is stopped,
or says that it died; it never just ends. An engine that does not answer for long is said to be silent, once,
and is asked again with longer pauses: it may have been busy with something else.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

_log = logging.getLogger(__name__)

Batch = TypeVar("Batch")


@dataclass(frozen=True, slots=True, kw_only=True)
class PollPace:
    """How a thread polls; pauses in seconds.

    rest_s: after a batch. idle_s: after a poll that brought nothing: an engine that has no client yet answers
    at once, and prints a line each time. failed_s: after one that raised. silent_s: after one that raised
    while the engine is silent.
    most_failures: so many in a row are silence. undelivered: batches the loop has not taken yet; then the
    thread waits, and what comes meanwhile lies in the engine's own bounded buffer.
    """

    rest_s: float = 0.05
    idle_s: float = 0.25
    failed_s: float = 1.0
    silent_s: float = 30.0
    most_failures: int = 10
    undelivered: int = 4


USUAL_PACE = PollPace()
# A poll waits in the engine for as long as it was told, which is less than this.
STOP_S = 5.0


class Hearing(StrEnum):
    """What has become of the asking: it brings nothing, it does so again, or it has ended for good."""

    SILENT = "silent"
    BACK = "back"
    DEAD = "dead"


class PollThread(Generic[Batch]):
    """Polls from `start` to `stop`. All of it is called, and calls back, in the event loop, but ``poll``.

    poll: blocks for a bounded time; None or an empty batch is nothing new. AssertionError before the first
    batch means that the engine has had no request yet. failures: polls that raised, since the start.
    on_hearing: each change, with what was raised where something was. SILENT after too many failures in a
    row, BACK with the first poll after it that does not raise. DEAD is the last one: the thread was ended
    from inside, or ``on_batch`` could not take a batch; nothing is polled any more.
    """

    def __init__(
        self,
        name: str,
        poll: Callable[[], Batch | None],
        on_batch: Callable[[Batch], None],
        on_hearing: Callable[[Hearing, BaseException | None], None],
        pace: PollPace = USUAL_PACE,
    ) -> None:
        self._name = name
        self._poll = poll
        self._on_batch = on_batch
        self._on_hearing = on_hearing
        self._pace = pace
        self._room = threading.Semaphore(pace.undelivered)
        self._stopped = threading.Event()
        self._has_spoken = False
        self._in_a_row = 0
        self._is_silent = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Future[None] | None = None
        self.failures = 0

    def start(self) -> None:
        """Begin. Once."""
        if self._loop is not None:
            raise RuntimeError(f"{self._name} was started already")
        self._loop = asyncio.get_running_loop()
        self._ended = self._loop.create_future()
        threading.Thread(target=self._run, name=self._name, daemon=True).start()

    async def stop(self, within_s: float = STOP_S) -> bool:
        """Nothing is called back from now on. Waits for the thread; False if its poll outlasts ``within_s``.

        Idempotent, also before `start`. Cancelling the call only ends the waiting. A thread that is stuck in
        its poll ends with it, or with the process.
        """
        self._end()
        if self._ended is None:
            return True
        await asyncio.wait({self._ended}, timeout=within_s)
        return self._ended.done()

    def _end(self) -> None:
        self._stopped.set()
        # The thread may wait for room that nobody will make any more.
        self._room.release()

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                self._stopped.wait(self._poll_once())
        except BaseException as exc:
            self._tell(self._die, exc)
        finally:
            self._tell(self._has_ended, None)

    def _poll_once(self) -> float:
        """The pause after it. Raises only what ends the thread."""
        try:
            batch = self._poll()
        except Exception as exc:
            if isinstance(exc, AssertionError) and not self._has_spoken:
                return self._pace.idle_s
            return self._failed(exc)
        self._answered()
        if not batch:
            return self._pace.idle_s
        self._has_spoken = True
        self._deliver(batch)
        return self._pace.rest_s

    def _answered(self) -> None:
        self._in_a_row = 0
        if self._is_silent:
            self._is_silent = False
            self._tell(self._say, (Hearing.BACK, None))

    def _failed(self, exc: Exception) -> float:
        """The pause after it."""
        if self._stopped.is_set():
            return 0.0
        self.failures += 1
        self._in_a_row += 1
        if self._in_a_row == 1:
            _log.warning(
                "TensorRT-LLM failed to answer %s (%s); it is asked again", self._name, type(exc).__name__
            )
        if self._in_a_row >= self._pace.most_failures and not self._is_silent:
            self._is_silent = True
            self._tell(self._say, (Hearing.SILENT, exc))
        return self._pace.silent_s if self._is_silent else self._pace.failed_s

    def _deliver(self, batch: Batch) -> None:
        self._room.acquire()
        self._tell(self._hand_over, batch)

    def _tell(self, callback: Callable[[Any], None], argument: object) -> None:
        try:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(callback, argument)
        except RuntimeError:
            # The loop is closed: nobody is there to be told.
            self._stopped.set()

    def _hand_over(self, batch: Batch) -> None:
        self._room.release()
        if self._stopped.is_set():
            return
        try:
            self._on_batch(batch)
        except Exception as exc:
            self._die(exc)

    def _say(self, said: tuple[Hearing, BaseException | None]) -> None:
        if not self._stopped.is_set():
            self._on_hearing(*said)

    def _die(self, cause: BaseException) -> None:
        if not self._stopped.is_set():
            self._end()
            self._on_hearing(Hearing.DEAD, cause)

    def _has_ended(self, _: object) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)
