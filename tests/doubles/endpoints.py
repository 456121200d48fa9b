"""The framework's endpoint: one that obeys, and stores behind it that are down."""

from __future__ import annotations

import asyncio


class EndpointDouble:
    """The framework's endpoint: notes who leaves and who comes back."""

    def __init__(self, events: list[str]) -> None:
        self._events = events

    async def unregister_endpoint_instance(self) -> None:
        self._events.append("unregister")

    async def register_endpoint_instance(self) -> None:
        self._events.append("register")


class HangingEndpoint(EndpointDouble):
    """A store that is down: the call comes back when the test lets it, and does not care to be cancelled."""

    def __init__(self, events: list[str]) -> None:
        super().__init__(events)
        self._may_return = asyncio.Event()

    def let_return(self) -> None:
        self._may_return.set()

    async def unregister_endpoint_instance(self) -> None:
        self._events.append("unregister")
        try:
            await self._may_return.wait()
        finally:
            await self._may_return.wait()


class RefusingEndpoint(EndpointDouble):
    """A store that answers with an error, in the given way."""

    def __init__(self, events: list[str], error: BaseException) -> None:
        super().__init__(events)
        self._error = error

    async def unregister_endpoint_instance(self) -> None:
        self._events.append("unregister")
        raise self._error
