"""What an operator may do to an engine that has no request: give its memory back and take it again."""

from __future__ import annotations

from typing import Protocol


class Maintenance(Protocol):
    """Called from the event loop, one call at a time, while the engine has no request."""

    @property
    def memories(self) -> tuple[str, ...]:
        """Names of the kinds of memory that `sleep` can give back, as the operator writes them."""
        ...

    @property
    def asleep(self) -> frozenset[str]:
        """What has been given back, be it by a `sleep` that failed half way."""
        ...

    def check(self, memories: tuple[str, ...]) -> None:
        """Changes nothing. Raises MaintenanceFailed with the reason why `sleep` could not give these back."""
        ...

    async def sleep(self, memories: tuple[str, ...]) -> None:
        """Give this memory back. Raises MaintenanceFailed; what was given back by then is in `asleep`."""
        ...

    async def wake(self) -> None:
        """Take everything back that was given. Raises MaintenanceFailed; may be tried again."""
        ...
