"""The facade's border: the framework's context as a caller, our errors as the framework's.

What a client sees of each error is measured and listed in docs/limits.md. Nothing that is not one
of these five leaves the facade.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from dynamo._core import Context
from dynamo.llm.exceptions import EngineShutdown as FrameworkEngineShutdown
from dynamo.llm.exceptions import HttpError, InvalidArgument, Unknown

from protocols.errors import (
    DeadlineExceeded,
    EngineShutdown,
    GenerationFailed,
    InvalidRequest,
    MaintenanceFailed,
    Overloaded,
    ReaderStalled,
)
from service.framework import deadline_status, installed_version
from service.telemetry.logs import get_logger

_LOG = get_logger("service.translation")
_TOO_MANY_REQUESTS = 429
_DEADLINE_PASSED = deadline_status(installed_version())


class ContextCaller:
    """One framework context, read as `protocols.caller.Caller`.

    All but the flag is read once, at the start: it is asked for after the framework may have dropped
    the context, and by actors that must not meet its errors.
    """

    __slots__ = ("context_id", "is_stopped", "metadata", "trace_headers")

    def __init__(self, context: Context) -> None:
        self.context_id: str = context.id()
        self.is_stopped = context.is_stopped
        self.trace_headers: Mapping[str, str] | None = context.trace_headers()
        self.metadata: Mapping[str, str] = dict(cast("Mapping[str, str]", context.metadata))


def to_framework(error: Exception) -> Exception:
    """The framework's exception for one of ours; for any other, Unknown without the text.

    EngineShutdown takes the instance out of routing for some seconds and lets a frontend move the
    request, so it is never used for one request's fault.
    """
    match error:
        case InvalidRequest():
            return InvalidArgument(str(error))
        case Overloaded():
            return HttpError(_TOO_MANY_REQUESTS, str(error))
        case DeadlineExceeded():
            return HttpError(_DEADLINE_PASSED, str(error))
        case EngineShutdown():
            return FrameworkEngineShutdown(str(error))
        case GenerationFailed() | ReaderStalled() | MaintenanceFailed():
            return Unknown(str(error))
        case _:
            _LOG.error("internal_error", once_per=type(error).__name__, exc_info=error)
            return Unknown("internal error of the worker")
