"""Is the engine dead? Asked regularly, and whenever something has failed.

The library answers without asking its engine: an engine that hangs looks well, and the watchdog of the graph
sees to that. What it does know is an error of its own that it cannot survive, and a process that has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from actors.engines.trtllm.life.daemons import begin_in_daemon
from protocols.errors import EngineDead

# A dead engine is known within two of these.
EVERY_S = 1.0
# Within this time the library notices that a process of its engine has ended, and this often somebody looks.
NOTICED_S, _LOOK_S = 1.0, 0.05


class HealthPoll:
    """Event loop. on_dead: told once, with the cause. noticed_s: how long `look_on` may take."""

    def __init__(
        self,
        llm: Any,
        on_dead: Callable[[BaseException], None],
        every_s: float = EVERY_S,
        noticed_s: float = NOTICED_S,
    ) -> None:
        self._noticed_s = noticed_s
        self._llm = llm
        self._on_dead = on_dead
        self._every_s = every_s
        self._soon = asyncio.Event()
        self._under_way: asyncio.Future[BaseException | None] | None = None

    async def run(self) -> None:
        """Until the engine is dead, or it is cancelled."""
        while True:
            cause = await self.look()
            if cause is not None:
                self._on_dead(cause)
                return
            # Not wait_for(): in Python 3.11 it forgets a cancellation that comes together with the event.
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every_s):
                    await self._soon.wait()
            self._soon.clear()

    async def look(self) -> BaseException | None:
        """The cause of its death, or None. One look at a time: who asks meanwhile gets the same answer."""
        if self._under_way is None or self._under_way.done():
            # A machine that has no thread left now is no death; the next look is soon enough.
            with suppress(RuntimeError):
                self._under_way = begin_in_daemon("trtllm-health", partial(cause_of_death, self._llm))
        if self._under_way is None:
            return None
        return await asyncio.shield(self._under_way)

    async def look_on(self) -> BaseException | None:
        """As `look`, again and again for as long as a death may take to be noticed. In bounded time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._noticed_s):
                while True:
                    cause = await self.look()
                    if cause is not None:
                        return cause
                    await asyncio.sleep(_LOOK_S)
        return None

    def look_soon(self) -> None:
        """Something has failed: do not wait."""
        self._soon.set()


def cause_of_death(llm: Any) -> BaseException | None:
    """None for an engine that may live. Any thread; may block where engine and worker are one process."""
    try:
        is_well = bool(llm._check_health())
    except Exception as exc:
        # An executor that is half gone.
        return exc
    return None if is_well else known_fault(llm) or EngineDead("TensorRT-LLM says that it is not well")


def known_fault(llm: Any) -> BaseException | None:
    """What the library has noted already, without looking anew. Returns at once; raises nothing."""
    try:
        return _noted(getattr(llm, "_executor", None))
    except Exception as exc:
        # Half gone: whoever asks has no other way to hear of it.
        return exc


def _noted(executor: Any) -> BaseException | None:
    if executor is None:
        return EngineDead("TensorRT-LLM has shut down")
    fault: object = getattr(executor, "_fatal_error", None)
    if isinstance(fault, BaseException):
        return fault
    is_shut = bool(executor.is_shutdown()) if hasattr(executor, "is_shutdown") else False
    return EngineDead("TensorRT-LLM is shutting down") if is_shut else None
