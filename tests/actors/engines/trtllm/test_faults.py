"""Which errors are the end of the engine, and which of one request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from actors.engines.trtllm.life.faults import Fault, fault_of, words_of_death
from protocols.errors import EngineDead

if TYPE_CHECKING:
    from actors.engines.trtllm.library import Library


@pytest.mark.parametrize(
    "text",
    [
        "CUDA error: an illegal memory access was encountered",
        "CUDA error: device-side assert triggered",
        "[TensorRT-LLM][ERROR] cudaErrorLaunchFailure: unspecified launch failure",
        "NCCL error: unhandled system error",
        "buffer pool poisoned, restart required",
        "the buffer pool is poisoned",
        "restart required",
        "hardware stack error",
        "device unavailable",
        "Engine has died: RuntimeError: rank 1",
        "CUDA out of memory after an illegal memory access",
    ],
)
def test_a_device_that_faulted_is_the_engines_end(library: Library, text: str) -> None:
    """Although it comes as the error of one request."""
    assert fault_of(library.RequestError(text), library) is Fault.ENGINE


@pytest.mark.parametrize(
    "text",
    [
        "out of memory for this request",
        "CUDA error: out of memory",
        "Prompt length (99) exceeds maximum (64)",
        "LoRA adapter could not be loaded",
        "",
    ],
)
def test_what_one_request_did_is_its_own(library: Library, text: str) -> None:
    """An allocation that failed leaves the device as it was."""
    assert fault_of(library.RequestError(text), library) is Fault.REQUEST


@pytest.mark.parametrize("exc", [ValueError("x"), TypeError("x"), AssertionError(), KeyError("x")])
def test_what_a_call_raises_is_the_requests(library: Library, exc: Exception) -> None:
    """A worker that took every unknown error for its end would let any client end it."""
    assert fault_of(exc, library) is Fault.REQUEST


def test_an_engine_that_says_it_is_dead(library: Library) -> None:
    """By its type; by its cause; and by what caused that."""
    dead_error = library.EngineDeadError
    assert dead_error is not None
    assert fault_of(dead_error(), library) is Fault.ENGINE
    wrapped = RuntimeError("generation failed")
    wrapped.__cause__ = library.RequestError("CUDA error: an illegal memory access was encountered")
    assert fault_of(wrapped, library) is Fault.ENGINE


def test_what_it_died_of_is_told_without_the_librarys_text(library: Library) -> None:
    """A text of the library may quote a prompt; types and words that we know do not."""
    cause = library.RequestError("CUDA error: an illegal memory access. While at: 'my secret'")
    dead = EngineDead("TensorRT-LLM takes no more requests")
    dead.__cause__ = cause
    assert words_of_death(cause) == "RequestError: illegal memory access, cuda error"
    assert words_of_death(dead) == (
        "EngineDead: TensorRT-LLM takes no more requests; RequestError: illegal memory access, cuda error"
    )
    assert words_of_death(RuntimeError("my secret")) == "RuntimeError"
