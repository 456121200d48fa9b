"""One small error tree, translated once per border.

An engine's driver maps its library's exceptions into this tree; the facade maps the tree
to the framework's exceptions. Cancellation is an outcome, never an error.
"""

from __future__ import annotations

import reprlib
from enum import Enum, StrEnum


class ServiceError(Exception):
    """Root of everything this service raises on purpose."""


class RequestError(ServiceError):
    """The caller's fault or the caller's luck: one request ends, nobody else notices."""


class InvalidRequest(RequestError):
    """A request that cannot be served as written.

    ``field`` is the path inside the request, ``allowed`` says what would have been accepted.
    ``value`` is shown shortened, and only to the caller who sent it; it is never logged.
    """

    def __init__(self, field: str, value: object, allowed: str) -> None:
        self.field = field
        self.value = value
        self.allowed = allowed
        super().__init__(f"{field}: {shorten(value)} is not accepted: {allowed}")


class Overloaded(RequestError):
    """Refused at the door because a bound is reached. Trying again later is right."""

    def __init__(self, reason: str, limit: str, retry_after_s: float = 1.0) -> None:
        self.reason = reason
        self.limit = limit
        self.retry_after_s = retry_after_s
        super().__init__(f"overloaded ({reason}): {limit}; retry after {retry_after_s:g} s")


class DeadlineExceeded(RequestError):
    """The request's own deadline passed. ``budget_s`` is what it was given at arrival."""

    def __init__(self, budget_s: float) -> None:
        self.budget_s = budget_s
        super().__init__(f"the deadline of {budget_s:g} s passed")


class ReaderStalled(RequestError):
    """The reader left its tokens lying for longer than ``--stall-timeout``."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        super().__init__(f"nothing was read for {timeout_s:g} s")


class EngineError(ServiceError):
    """The engine's fault, one request. The worker stays."""


class FailureCause(StrEnum):
    """Why a request failed, for the log line and the count."""

    # The engine said so.
    ENGINE = "engine"
    # It raised when it was given the request, or while it prepared it.
    SUBMIT = "submit"
    PREPARE = "prepare"
    # It said what cannot be: no token, a choice nobody asked for, an end without a reason.
    BROKEN_WORD = "broken_word"
    # It died, or an actor crashed: everybody's end.
    DEAD = "dead"


class GenerationFailed(EngineError):
    """The engine could not go on with one request. The text is stable and free of content."""

    def __init__(self, text: str, cause: FailureCause = FailureCause.ENGINE) -> None:
        self.cause = cause
        super().__init__(text)


class EngineShutdown(ServiceError):
    """Fatal for every request, or the worker is leaving. A frontend may move the request."""


class EngineDead(EngineShutdown):
    """The engine will never produce another step."""


class InternalError(ServiceError):
    """A broken invariant: a bug in this service. Fatal."""


class MaintenanceFailed(ServiceError):
    """The engine did not do what the operator asked of it. The text is the operator's: it has no content."""


class StartStopped(ServiceError):
    """A stop was asked for while the engine was still starting."""


class StartFault(Enum):
    """Where the fault of a failed start lies, and so whether another start may do better.

    CONFIGURATION: the same start fails again. UNAVAILABLE: what it needs cannot be had now, the
    model's files most often. ENGINE: it died.
    """

    CONFIGURATION = "configuration"
    UNAVAILABLE = "unavailable"
    ENGINE = "engine"


class EngineStartError(ServiceError):
    """The engine cannot start. ``hint`` says what to change, or where to look."""

    def __init__(self, problem: str, hint: str = "", fault: StartFault = StartFault.CONFIGURATION) -> None:
        self.problem = problem
        self.hint = hint
        self.fault = fault
        super().__init__(f"{problem} {hint}".strip())


# Longest text of a refused value that is sent back to its caller.
_SHOWN_CHARACTERS = 80


def shorten(value: object, characters: int = _SHOWN_CHARACTERS) -> str:
    """A value as whoever gave it can recognise it, at most so many characters long."""
    # Looks at the first few parts only: a refused value may be a picture of many megabytes.
    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = characters
    try:
        text = short.repr(value)
    except (ValueError, RecursionError):
        # Python refuses to write an integer of thousands of digits.
        text = f"this {type(value).__name__}"
    return text if len(text) <= characters else f"{text[: characters - 1]}…"
