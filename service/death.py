"""The one death path: whatever breaks the graph ends the whole worker, in order and with code 70.

An actor that raised or an engine that died leaves a worker that looks alive and serves nothing.
So: out of discovery first, every live request gets EngineShutdown (the graph does that while it
closes, after this was called), then the framework's own shutdown by a SIGTERM to ourselves.
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

from service.stopping import StopSignals
from service.telemetry.logs import get_logger

# Leaving discovery is one call to a store that may be the very thing that is down.
_LEAVE_DISCOVERY_S = 2.0
# Root causes in one line of the log.
_CAUSES = 8


class DeathPath:
    """Entered at most once, from the loop."""

    def __init__(self, signals: StopSignals) -> None:
        self._signals = signals
        self._task: asyncio.Task[None] | None = None
        self._log = get_logger("service.death")
        self.endpoint: Any = None
        self.cause: BaseException | None = None

    @property
    def is_dead(self) -> bool:
        """Whether the worker is ending because something broke."""
        return self.cause is not None

    def on_crash(self, cause: BaseException) -> None:
        """Something broke for good. Returns at once; the rest happens in a task."""
        if self.cause is not None:
            return
        self.cause = cause
        self._log.error("worker.failed", causes=_root_causes(cause))
        self._task = asyncio.get_running_loop().create_task(self._leave(), name="death-path")

    async def _leave(self) -> None:
        try:
            if self.endpoint is not None:
                await self._leave_discovery()
        finally:
            if not self._signals.is_asked:
                os.kill(os.getpid(), signal.SIGTERM)

    async def _leave_discovery(self) -> None:
        """Whatever the store does with the call, we wait for it no longer than this."""
        leaving = asyncio.create_task(_unregister(self.endpoint))
        await asyncio.wait({leaving}, timeout=_LEAVE_DISCOVERY_S)
        error = leaving.exception() if leaving.done() else TimeoutError()
        if error is not None:
            self._log.warning("discovery.leave_failed", error=type(error).__name__)


async def _unregister(endpoint: Any) -> None:
    await endpoint.unregister_endpoint_instance()


def _root_causes(exc: BaseException) -> list[str]:
    """What really happened, below groups and wrappers, as type and text."""
    pending, seen, found = [exc], set[int](), list[str]()
    while pending and len(found) < _CAUSES:
        current = pending.pop(0)
        if id(current) in seen:
            continue
        seen.add(id(current))
        if isinstance(current, BaseExceptionGroup):
            pending.extend(current.exceptions)
        elif current.__cause__ is not None:
            pending.append(current.__cause__)
        else:
            found.append(f"{type(current).__name__}: {current}")
    return found
