"""What can go wrong with one request or with the whole engine.

RequestError and EngineDeadError are siblings: who catches RuntimeError alone cannot tell them apart.
"""

from __future__ import annotations

from typing import NamedTuple


class RequestError(RuntimeError):
    """One request failed; the engine goes on."""


class EngineDeadError(RuntimeError):
    """The engine is gone for good. root_cause: what was seen first, None when that is not known."""

    def __init__(self, root_cause: BaseException | None = None) -> None:
        because = "" if root_cause is None else f": {type(root_cause).__name__}: {root_cause}"
        super().__init__(f"Engine has died{because}")
        self.root_cause = root_cause


class CppExecutorError(RuntimeError):
    """An error of the compiled executor. stack_trace: its frames, in the message only when it is printed."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.stack_trace = "(the double has no compiled frames)"

    def __str__(self) -> str:
        """Return the message and the frames, as the real one does."""
        return f"{self.message}\nStack trace:\n{self.stack_trace}"


class ErrorResponse(NamedTuple):
    """A message from the engine's process, not an exception: the request with this id has failed."""

    client_id: int
    error_msg: str
    request_id: int
