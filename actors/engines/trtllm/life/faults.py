"""Whose fault is what TensorRT-LLM raises: one request's, or the end of the engine.

Its request errors are of one type, and a device that faulted comes as such an error of every request:
only the words tell. A worker that took them for requests' faults would answer 500 for days.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from actors.engines.trtllm.library import Library
from protocols.errors import ServiceError


class Fault(Enum):
    """What an exception says about the engine."""

    REQUEST = "request"
    ENGINE = "engine"


# Of CUDA and its libraries after an error that no later call survives; of TensorRT-LLM about its own pools,
# processes and queues.
_FATAL = (
    "illegal memory access", "device-side assert", "misaligned address", "illegal instruction",
    "unspecified launch failure", "uncorrectable ecc", "hardware stack error", "device unavailable",
    "cudaerror", "cuda error", "cuda driver error", "cublas_status", "cudnn_status", "nccl error",
    "poisoned", "restart required", "requires restart", "engine is dead", "engine has died",
    "executor worker died", "rpc server is not running",
)  # fmt: skip
# An allocation that failed leaves the device as it was.
_OF_MEMORY = ("out of memory", "cudaerrormemoryallocation", "cublas_status_alloc_failed")
# What even an allocation that failed does not excuse.
_POISONED = (
    "illegal memory access",
    "device-side assert",
    "poisoned",
    "restart required",
    "requires restart",
)

# How many of an error's causes one line of the log names.
_MOST_CAUSES = 4


def fault_of(exc: BaseException, library: Library) -> Fault:
    """Looks at what was raised and at all that caused it."""
    for each in _with_causes(exc):
        if library.EngineDeadError is not None and isinstance(each, library.EngineDeadError):
            return Fault.ENGINE
        if is_fatal(str(each)):
            return Fault.ENGINE
    return Fault.REQUEST


def is_fatal(text: str) -> bool:
    """Whether these are the words of an engine that will not work again."""
    words = text.lower()
    if any(each in words for each in _OF_MEMORY):
        return any(each in words for each in _POISONED)
    return any(each in words for each in _FATAL)


def words_of_death(cause: BaseException) -> str:
    """What an operator may read of the engine's end: the type, and what is known of its words.

    The library's text itself may quote a request.
    """
    names: list[str] = []
    for each in _with_causes(cause):
        text = str(each).lower()
        known = [str(each)] if isinstance(each, ServiceError) else [word for word in _FATAL if word in text]
        names.append(": ".join([type(each).__name__, ", ".join(known)] if known else [type(each).__name__]))
    return "; ".join(names[:_MOST_CAUSES])


def _with_causes(exc: BaseException | None) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    while exc is not None and exc not in seen:
        seen.append(exc)
        yield exc
        root: object = getattr(exc, "root_cause", None)
        exc = root if isinstance(root, BaseException) else exc.__cause__ or exc.__context__
