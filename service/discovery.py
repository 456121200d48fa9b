"""Whether the frontend finds this worker: calls to a store that may be down, so each has a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from protocols.bounds import Bound, OnBound, ignore_bound
from service.telemetry.logs import get_logger

# A store in the same cluster answers within milliseconds; one that is down never does.
STORE_S = 2.0
# Calls that a store may leave hanging, for an operator who drains and resumes again and again meanwhile.
MOST_HANGING = 8
# Between two attempts at a store that did not do what it was asked.
RETRY_S = 1.0


class Discovery:
    """The framework's endpoint, once there is one. Loop only; nothing here raises.

    What a store could not do when it was asked is asked again until it is done, wished otherwise, or
    the worker ends: a drained worker must not stay listed, nor one that serves again unlisted.

    is_over: whether the worker is ending; from then on the framework keeps it out of discovery.
    is_listed: whether the worker is in discovery, as far as we know.
    on_joined: told each time that the worker is back, be it at once or when the store was.
    on_bound: told of every call that the store did not answer in time, or that was not even made.
    """

    def __init__(
        self,
        is_over: Callable[[], bool],
        on_joined: Callable[[], None],
        on_bound: OnBound = ignore_bound,
    ) -> None:
        self._on_joined = on_joined
        self._on_bound = on_bound
        self.is_listed = False
        self._is_over = is_over
        self._endpoint: Any = None
        self._asking = set[asyncio.Task[None]]()
        self._one_at_a_time = asyncio.Lock()
        # Counts wishes: an older one is not asked for again.
        self._wish = 0
        self._retrying: asyncio.Task[None] | None = None
        self._log = get_logger("service.discovery")

    def opened(self, endpoint: Any) -> None:
        """The framework lists the endpoint right after it has told us."""
        self._endpoint = endpoint
        self.is_listed = True

    async def leave(self) -> bool:
        """No new requests from frontends. False when the store did not say so in time."""
        return await self._wish_for(is_listed=False)

    async def join(self) -> bool:
        """Back into the frontends' choice. False when the store did not say so in time."""
        return await self._wish_for(is_listed=True)

    async def _wish_for(self, *, is_listed: bool) -> bool:
        if self._endpoint is None:
            return False
        self._wish += 1
        wish = self._wish
        is_done = await self._ask(is_listed=is_listed)
        # An attempt of an older wish that still hangs may undo this one when it comes through.
        is_settled = is_done and not self._asking
        if not is_settled and wish == self._wish and not self._is_over():
            self._retrying = asyncio.create_task(self._keep_asking(wish, is_listed=is_listed))
        return is_done

    async def _keep_asking(self, wish: int, *, is_listed: bool) -> None:
        while True:
            # Whatever still hangs comes first: two attempts at once could end in either order.
            await asyncio.wait({asyncio.create_task(asyncio.sleep(RETRY_S)), *self._asking})
            if wish != self._wish or self._is_over():
                return
            if await self._ask(is_listed=is_listed):
                self._log.info("discovery.caught_up", in_discovery=is_listed)
                return

    async def _ask(self, *, is_listed: bool) -> bool:
        """Whatever the store does with the call, we wait for it no longer than the limit."""
        endpoint = self._endpoint
        call = endpoint.register_endpoint_instance if is_listed else endpoint.unregister_endpoint_instance
        async with self._one_at_a_time:
            if len(self._asking) >= MOST_HANGING:
                self._on_bound(Bound.DISCOVERY)
                return False
            asking = asyncio.create_task(_await(call))
            # The loop itself holds tasks weakly; one that hangs must not be collected in mid-call.
            self._asking.add(asking)
            asking.add_done_callback(self._asking.discard)
            await asyncio.wait({asking}, timeout=STORE_S)
        error = asking.exception() if asking.done() else TimeoutError()
        if not asking.done():
            self._on_bound(Bound.DISCOVERY)
        if error is None:
            self.is_listed = is_listed
            if is_listed:
                self._on_joined()
            return True
        what = "join" if is_listed else "leave"
        self._log.warning("discovery.failed", what=what, error=type(error).__name__, once_per=what)
        return False


async def _await(call: Callable[[], Awaitable[None]]) -> None:
    await call()
