"""The framework's context of one client, as a double and as the framework's own object.

The framework hands `generate()` and `abort()` two Python objects with the same id. Both show what
the client did; the double's objects share that state, the real ones do so inside the framework.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dynamo._core import Context

_NUMBERS = count(1)


class Client(Protocol):
    """Somebody who asks through the frontend, and may leave."""

    def context(self) -> Any:
        """Another object for the same request."""
        ...

    def leave(self) -> None:
        """Close the connection: the flag is up before the framework calls ``abort()``."""
        ...


class FakeClient:
    """One client; every `context` of it is a new object over the same facts."""

    def __init__(
        self,
        context_id: str | None = None,
        metadata: Mapping[str, str] | None = None,
        trace_headers: Mapping[str, str] | None = None,
    ) -> None:
        self.context_id = context_id or f"client-{next(_NUMBERS)}"
        self.metadata = dict(metadata or {})
        self.trace_headers = trace_headers
        self.has_left = False

    def context(self) -> FakeContext:
        return FakeContext(self)

    def leave(self) -> None:
        self.has_left = True


class FakeContext:
    """What the facade may use of the framework's Context."""

    def __init__(self, client: FakeClient) -> None:
        self._client = client

    def id(self) -> str:
        return self._client.context_id

    def is_stopped(self) -> bool:
        return self._client.has_left

    def is_killed(self) -> bool:
        return self._client.has_left

    @property
    def metadata(self) -> Mapping[str, str]:
        return self._client.metadata

    def trace_headers(self) -> Mapping[str, str] | None:
        return self._client.trace_headers


class RealClient:
    """The framework's own Context. `generate()` gets one object, whose flag `leave` puts up.

    Python can make a context but not a second object for it, so ``abort()`` gets a namesake.
    """

    def __init__(self, context_id: str | None = None, metadata: Mapping[str, str] | None = None) -> None:
        self.context_id = context_id or f"client-{next(_NUMBERS)}"
        self._metadata = dict(metadata or {})
        self._given: list[Context] = []

    def context(self) -> Context:
        from dynamo._core import Context as FrameworkContext

        self._given.append(FrameworkContext(self.context_id, self._metadata))
        return self._given[-1]

    def leave(self) -> None:
        for context in self._given:
            context.stop_generating()
