"""Whose fault an exception is: one request's, or the end of the engine.

A device that faulted (an illegal address, an assertion in a kernel) refuses all work until the process is
gone; a step that failed for a reason nobody knows may have left anything behind. Both are the end. Memory
that ran out is neither: the allocator is sound, and no row of the step counts as computed.
"""

from __future__ import annotations

from enum import Enum

import torch

from protocols.errors import InternalError


class Fault(Enum):
    """What an exception says about the engine."""

    MEMORY = "memory"
    DEVICE = "device"
    UNKNOWN = "unknown"


# torch tells faults of a device apart from its own mistakes by words only, before version 2.8 in every case.
_OF_A_DEVICE = ("cuda error", "cublas_status", "cudnn_status", "device-side assert", "illegal memory access")
# Out of memory on a CPU is a plain RuntimeError.
_OF_MEMORY = ("defaultcpuallocator: can't allocate memory", "cublas_status_alloc_failed")


def fault_of(exc: BaseException) -> Fault:
    """Looks at what was raised and at what caused it. A device's fault outweighs everything else."""
    faults = {_own_fault_of(each) for each in _with_causes(exc)}
    for fault in (Fault.DEVICE, Fault.MEMORY):
        if fault in faults:
            return fault
    return Fault.UNKNOWN


def is_of_one_request(exc: Exception) -> bool:
    """For what is done for one request alone: anything but a sick device or a broken invariant."""
    return not isinstance(exc, InternalError) and fault_of(exc) is not Fault.DEVICE


class OutOfMemory(Exception):
    """The forward pass of a step found no memory. Nothing of the step counts."""


def _own_fault_of(exc: BaseException) -> Fault:
    text = str(exc).lower()
    if isinstance(exc, torch.OutOfMemoryError | MemoryError) or any(words in text for words in _OF_MEMORY):
        return Fault.MEMORY
    if isinstance(exc, torch.AcceleratorError) or any(words in text for words in _OF_A_DEVICE):
        return Fault.DEVICE
    return Fault.UNKNOWN


def _with_causes(exc: BaseException | None) -> list[BaseException]:
    chain: list[BaseException] = []
    while exc is not None and exc not in chain:
        chain.append(exc)
        exc = exc.__cause__ or exc.__context__
    return chain
