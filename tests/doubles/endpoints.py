"""The framework's endpoint: one that obeys, and stores behind it that are down."""

from __future__ import annotations

import asyncio


class EndpointDouble:
    """The framework's endpoint: notes who leaves and who comes back, and whether it is listed now."""

    def __init__(self, events: list[str]) -> None:
        self.events = events
        self.is_listed = True

    async def unregister_endpoint_instance(self) -> None:
        self.events.append("unregister")
        self.is_listed = False

    async def register_endpoint_instance(self) -> None:
        self.events.append("register")
        self.is_listed = True


class MoodyEndpoint(EndpointDouble):
    """A store that does what it is asked, but for the time when it is down."""

    is_down = False

    async def unregister_endpoint_instance(self) -> None:
        if self.is_down:
            self.events.append("unregister")
            raise ConnectionError("no route")
        await super().unregister_endpoint_instance()

    async def register_endpoint_instance(self) -> None:
        if self.is_down:
            self.events.append("register")
            raise ConnectionError("no route")
        await super().register_endpoint_instance()


class HangingEndpoint(EndpointDouble):
    """A store that is down: the call comes back when the test lets it, and does not care to be cancelled."""

    def __init__(self, events: list[str]) -> None:
        super().__init__(events)
        self._may_return = asyncio.Event()

    def let_return(self) -> None:
        self._may_return.set()

    async def unregister_endpoint_instance(self) -> None:
        self.events.append("unregister")
        try:
            await self._may_return.wait()
        finally:
            await self._may_return.wait()
            self.is_listed = False


class SlowEndpoint(EndpointDouble):
    """A store that takes its time over everything: what a call was for is so when it comes back.

    asked: set by the first call, from when it is under way.
    """

    def __init__(self, events: list[str], seconds: float) -> None:
        super().__init__(events)
        self._seconds = seconds
        self.asked = asyncio.Event()

    async def unregister_endpoint_instance(self) -> None:
        self.asked.set()
        await asyncio.sleep(self._seconds)
        await super().unregister_endpoint_instance()

    async def register_endpoint_instance(self) -> None:
        self.asked.set()
        await asyncio.sleep(self._seconds)
        await super().register_endpoint_instance()


class RefusingEndpoint(EndpointDouble):
    """A store that answers with an error, in the given way."""

    def __init__(self, events: list[str], error: BaseException) -> None:
        super().__init__(events)
        self._error = error

    async def unregister_endpoint_instance(self) -> None:
        self.events.append("unregister")
        raise self._error
