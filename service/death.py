"""The one death path: whatever breaks the graph ends the whole worker, in order and with code 70.

An actor that raised or an engine that died leaves a worker that looks alive and serves nothing.
So: out of discovery first, every live request gets EngineShutdown (the graph does that while it
closes, after this was called), then the framework's own shutdown by a SIGTERM to ourselves.
"""

from __future__ import annotations

import asyncio
import os
import signal
import traceback
from contextlib import suppress
from pathlib import Path
from typing import cast

from protocols.errors import ServiceError
from service.discovery import STORE_S, Discovery
from service.notify import Notifier
from service.notify.events import Failed
from service.stopping import StopSignals
from service.telemetry.logs import get_logger

# Root causes in one line of the log.
_CAUSES = 8


class DeathPath:
    """Entered at most once, from the loop."""

    def __init__(self, signals: StopSignals, discovery: Discovery, notifier: Notifier | None = None) -> None:
        self._signals = signals
        self._discovery = discovery
        self._notifier = notifier or Notifier()
        self._task: asyncio.Task[None] | None = None
        self._log = get_logger("service.death")
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
        causes = _root_causes(cause)
        self._log.error("worker.failed", causes=causes)
        self._notifier.tell(Failed(causes[0]))
        self._task = asyncio.get_running_loop().create_task(self._leave(), name="death-path")

    async def _leave(self) -> None:
        try:
            # Others may be waiting for the same store: we do so for one answer's time and no longer.
            with suppress(TimeoutError):
                await asyncio.wait_for(self._discovery.leave(), STORE_S)
        finally:
            if not self._signals.is_asked:
                os.kill(os.getpid(), signal.SIGTERM)


def _root_causes(exc: BaseException) -> list[str]:
    """What really happened, below groups and wrappers."""
    pending, seen, found = [exc], set[int](), list[str]()
    while pending and len(found) < _CAUSES:
        current = pending.pop(0)
        if id(current) in seen:
            continue
        seen.add(id(current))
        if isinstance(current, BaseExceptionGroup):
            pending.extend(cast("BaseExceptionGroup[BaseException]", current).exceptions)
        elif current.__cause__ is not None:
            pending.append(current.__cause__)
        else:
            found.append(_described(current))
    return found


def _described(exc: BaseException) -> str:
    """Our own errors in their words, which are free of content; any other by its type and its place."""
    name = type(exc).__name__
    if isinstance(exc, ServiceError):
        return f"{name}: {exc}"
    frames = traceback.extract_tb(exc.__traceback__)
    return f"{name} at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else name
