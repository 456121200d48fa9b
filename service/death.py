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
        if self.endpoint is not None:
            try:
                await asyncio.wait_for(self.endpoint.unregister_endpoint_instance(), _LEAVE_DISCOVERY_S)
            except Exception as exc:
                self._log.warning("discovery.leave_failed", error=type(exc).__name__)
        if not self._signals.is_asked:
            os.kill(os.getpid(), signal.SIGTERM)


def _root_causes(exc: BaseException) -> list[str]:
    """What really happened, below groups and wrappers, as type and text, at most eight."""
    pending, found = [exc], list[str]()
    while pending and len(found) < 8:
        current = pending.pop(0)
        if isinstance(current, BaseExceptionGroup):
            pending.extend(current.exceptions)
        elif current.__cause__ is not None:
            pending.append(current.__cause__)
        else:
            found.append(f"{type(current).__name__}: {current}")
    return found
