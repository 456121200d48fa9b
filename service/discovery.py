"""Whether the frontend finds this worker: calls to a store that may be down, so each has a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from protocols.bounds import Bound, OnBound, ignore_bound
from service.telemetry.logs import get_logger

# A store in the same cluster answers within milliseconds; one that is down never does.
STORE_S = 2.0
# Calls that a store may leave hanging, all together.
MOST_HANGING = 8
# Between two attempts at a store that did not do what it was asked.
RETRY_S = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class _Wish:
    """Where the worker shall be. Each one is another, even if it says the same."""

    is_listed: bool


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
        # Calls that the store has not answered yet, and whether each of them joins.
        self._asking: dict[asyncio.Task[None], bool] = {}
        self._one_at_a_time = asyncio.Lock()
        # The last wish and the last attempt at it; an older wish is not asked for any more.
        self._wish: _Wish | None = None
        self._attempt: asyncio.Task[bool] | None = None
        self._following: asyncio.Task[None] | None = None
        # The loop itself holds tasks weakly.
        self._attempts = set[asyncio.Task[bool]]()
        self._log = get_logger("service.discovery")

    def opened(self, endpoint: Any) -> None:
        """The framework lists the endpoint right after it has told us."""
        self._endpoint = endpoint
        self.is_listed = True

    async def leave(self) -> bool:
        """No new requests from frontends. False when the store did not say so in time."""
        return await self._wish_for(is_listed=False)

    async def stay_out(self) -> bool:
        """Leave, unless that is so already: a store complains when it is asked for what it has not."""
        wish = self._wish
        is_out = wish is not None and not (wish.is_listed or self.is_listed or self._asking)
        return is_out or await self.leave()

    async def join(self) -> bool:
        """Back into the frontends' choice. False when the store did not say so in time."""
        return await self._wish_for(is_listed=True)

    def taken_out(self) -> None:
        """The framework has taken the worker out by itself, as it does around some control routes."""
        self._wish = _Wish(is_listed=False)
        if self._following is not None:
            self._following.cancel()
        self._attempt = None
        self.is_listed = False

    async def _wish_for(self, *, is_listed: bool) -> bool:
        """Whoever wishes the same while it is being asked for shares that attempt."""
        if self._endpoint is None:
            return False
        attempt = self._attempt
        if attempt is None or attempt.done() or self._wish is None or self._wish.is_listed is not is_listed:
            attempt = self._wish_anew(is_listed=is_listed)
        await asyncio.wait({attempt})
        return attempt.result()

    def _wish_anew(self, *, is_listed: bool) -> asyncio.Task[bool]:
        self._wish = wish = _Wish(is_listed)
        if self._following is not None:
            self._following.cancel()
        attempt = self._try(wish)
        self._following = asyncio.create_task(self._follow(wish, attempt))
        return attempt

    def _try(self, wish: _Wish) -> asyncio.Task[bool]:
        self._attempt = attempt = asyncio.create_task(self._ask(wish))
        self._attempts.add(attempt)
        attempt.add_done_callback(self._attempts.discard)
        return attempt

    async def _follow(self, wish: _Wish, attempt: asyncio.Task[bool]) -> None:
        """Ask until what was wished is so and stays so. The next wish cancels this."""
        await asyncio.wait({attempt})
        while not attempt.result() or self._opposing(wish):
            await self._wait_for_a_change(wish, is_done=attempt.result())
            if self._is_over():
                return
            attempt = self._try(wish)
            await asyncio.wait({attempt})
            if attempt.result():
                self._log.info("discovery.caught_up", in_discovery=wish.is_listed)

    async def _wait_for_a_change(self, wish: _Wish, *, is_done: bool) -> None:
        """Until another attempt makes sense. is_done: the last one did what was wished."""
        awaited = self._opposing(wish) if is_done else set(self._asking)
        if is_done or len(awaited) >= MOST_HANGING:
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(RETRY_S)

    def _opposing(self, wish: _Wish) -> set[asyncio.Task[None]]:
        """Calls of older wishes that still hang, and undo this one should they come through."""
        return {asking for asking, is_join in self._asking.items() if is_join is not wish.is_listed}

    async def _ask(self, wish: _Wish) -> bool:
        """Whatever the store does with the call, we wait for it no longer than the limit."""
        async with self._one_at_a_time:
            # Much may have happened while this waited for its turn.
            if wish is not self._wish or (wish.is_listed and self._is_over()):
                return False
            if len(self._asking) >= MOST_HANGING:
                self._on_bound(Bound.DISCOVERY)
                return False
            asking = self._call(is_listed=wish.is_listed)
            await asyncio.wait({asking}, timeout=STORE_S)
        error = asking.exception() if asking.done() else TimeoutError()
        if not asking.done():
            self._on_bound(Bound.DISCOVERY)
        if error is None:
            return True
        what = "join" if wish.is_listed else "leave"
        self._log.warning("discovery.failed", what=what, error=type(error).__name__, once_per=what)
        return False

    def _call(self, *, is_listed: bool) -> asyncio.Task[None]:
        endpoint = self._endpoint
        call = endpoint.register_endpoint_instance if is_listed else endpoint.unregister_endpoint_instance
        asking = asyncio.create_task(_await(call))
        self._asking[asking] = is_listed
        asking.add_done_callback(self._on_answer)
        return asking

    def _on_answer(self, asking: asyncio.Task[None]) -> None:
        """The store did it or refused, perhaps long after we have stopped waiting for it."""
        is_listed = self._asking.pop(asking)
        if asking.cancelled() or asking.exception() is not None:
            return
        self.is_listed = is_listed
        if is_listed and self._is_over():
            # The framework may have taken the worker out before this came through.
            self._wish_anew(is_listed=False)
        elif is_listed:
            self._on_joined()


async def _await(call: Callable[[], Awaitable[None]]) -> None:
    await call()
