"""Whether the frontend finds this worker: calls to a store that may be down, so each has a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from service.telemetry.logs import get_logger

# A store in the same cluster answers within milliseconds; one that is down never does.
STORE_S = 2.0


class Discovery:
    """The framework's endpoint, once there is one. Loop only; nothing here raises.

    is_listed: whether the worker is in discovery, as far as we know.
    """

    def __init__(self) -> None:
        self.is_listed = False
        self._endpoint: Any = None
        self._asking = set[asyncio.Task[None]]()
        self._one_at_a_time = asyncio.Lock()
        self._log = get_logger("service.discovery")

    def opened(self, endpoint: Any) -> None:
        """The framework lists the endpoint right after it has told us."""
        self._endpoint = endpoint
        self.is_listed = True

    async def leave(self) -> bool:
        """No new requests from frontends. False when the store did not say so in time."""
        if self._endpoint is None:
            return False
        is_done = await self._ask("leave", self._endpoint.unregister_endpoint_instance)
        self.is_listed = self.is_listed and not is_done
        return is_done

    async def join(self) -> bool:
        """Back into the frontends' choice. False when the store did not say so in time."""
        if self._endpoint is None:
            return False
        is_done = await self._ask("join", self._endpoint.register_endpoint_instance)
        self.is_listed = self.is_listed or is_done
        return is_done

    async def _ask(self, what: str, call: Callable[[], Awaitable[None]]) -> bool:
        """Whatever the store does with the call, we wait for it no longer than the limit."""
        async with self._one_at_a_time:
            asking = asyncio.create_task(_await(call))
            # The loop itself holds tasks weakly; one that hangs must not be collected in mid-call.
            self._asking.add(asking)
            asking.add_done_callback(self._asking.discard)
            await asyncio.wait({asking}, timeout=STORE_S)
        error = asking.exception() if asking.done() else TimeoutError()
        if error is not None:
            self._log.warning("discovery.failed", what=what, error=type(error).__name__)
        return error is None


async def _await(call: Callable[[], Awaitable[None]]) -> None:
    await call()
