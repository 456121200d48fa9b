"""One call of an engine's maintenance at a time, and none that is waited for for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from protocols.errors import MaintenanceFailed

# A driver has a limit of its own; this is for one whose call does not come back all the same.
CALL_S = 300.0
# What a call has after it was cancelled, before it counts as one that cannot be.
_LET_GO_S = 1.0


class EngineCall:
    """Event loop. A call that is left behind blocks those after it until it has come back."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    async def make(self, what: str, work: Coroutine[None, None, None]) -> None:
        """Wait for it, CALL_S at most. Raises MaintenanceFailed, whatever the call raised or did not.

        Cancelling this leaves the call to itself.
        """
        if self._task is not None and not self._task.done():
            work.close()
            raise MaintenanceFailed(f"{what}: the engine has not come back from the call before")
        self._task = task = asyncio.create_task(work, name=f"engine-{what}")
        task.add_done_callback(_hear)
        await asyncio.wait({task}, timeout=CALL_S)
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=_LET_GO_S)
            raise MaintenanceFailed(f"{what}: no answer within {CALL_S:g} s")
        if task.cancelled():
            raise MaintenanceFailed(f"{what}: the call was cancelled")
        error = task.exception()
        if isinstance(error, MaintenanceFailed):
            raise error
        if error is not None:
            raise MaintenanceFailed(f"{what}: {type(error).__name__}") from error


def _hear(task: asyncio.Task[None]) -> None:
    """Of a call that was left behind nobody asks how it ended."""
    if not task.cancelled():
        task.exception()
