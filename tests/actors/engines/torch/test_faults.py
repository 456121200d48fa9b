"""Which exceptions end the engine and which one request: by type and word, and at a running engine (S12)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from actors.engines.torch.attention import PagedAttention
from actors.engines.torch.faults import Fault, fault_of, is_of_one_request
from actors.engines.torch.outfit import Outfitter
from protocols.errors import EngineDead, InternalError
from protocols.spec import GenerationSpec, Sampling, StopRules
from tests.actors.engines.torch import tiny_models

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.actors.engines.torch.conftest import Opener

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

ILLEGAL_ADDRESS = "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be late"
ASSERTION = "CUDA error: device-side assert triggered"
CUDA_MEMORY = "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 139.80 GiB"
CPU_MEMORY = (
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried"
)


def caused_by(outer: Exception, cause: Exception) -> Exception:
    outer.__cause__ = cause
    return outer


@pytest.mark.parametrize(
    ("exc", "fault"),
    [
        (torch.OutOfMemoryError(CUDA_MEMORY), Fault.MEMORY),
        (MemoryError(), Fault.MEMORY),
        (RuntimeError(CPU_MEMORY), Fault.MEMORY),
        (
            RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
            Fault.MEMORY,
        ),
        (torch.AcceleratorError(ILLEGAL_ADDRESS), Fault.DEVICE),
        (RuntimeError(ILLEGAL_ADDRESS), Fault.DEVICE),
        (RuntimeError(ASSERTION), Fault.DEVICE),
        (RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`"), Fault.DEVICE),
        (RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"), Fault.DEVICE),
        (caused_by(RuntimeError("the step failed"), RuntimeError(ILLEGAL_ADDRESS)), Fault.DEVICE),
        (caused_by(torch.OutOfMemoryError(CUDA_MEMORY), RuntimeError(ASSERTION)), Fault.DEVICE),
        (caused_by(ValueError("x"), MemoryError()), Fault.MEMORY),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), Fault.UNKNOWN),
        (KeyError("rope"), Fault.UNKNOWN),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_an_exception_says(exc: Exception, fault: Fault) -> None:
    """Types where torch has them, words where it has not; the worst of the whole chain holds."""
    assert fault_of(exc) is fault


def test_a_chain_that_bites_its_tail_ends() -> None:
    """Exceptions may be each other's cause."""
    one, other = RuntimeError("one"), RuntimeError("other")
    one.__cause__, other.__cause__ = other, one
    assert fault_of(one) is Fault.UNKNOWN


@pytest.mark.parametrize(
    ("exc", "is_its_own"),
    [
        (ValueError("a seed that is none"), True),
        (torch.OutOfMemoryError(CUDA_MEMORY), True),
        (torch.AcceleratorError(ILLEGAL_ADDRESS), False),
        (InternalError("a broken invariant"), False),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_one_requests_own_work_may_raise(exc: Exception, is_its_own: bool) -> None:
    """Anything but a sick device and a bug of ours."""
    assert is_of_one_request(exc) is is_its_own


def greedy(prompt: tuple[int, ...], tokens: int = 12) -> GenerationSpec:
    return GenerationSpec(
        prompt=prompt, stop=StopRules(max_tokens=tokens), sampling=Sampling(temperature=0.0)
    )


SHORT, LONG = tiny_models.prompts((5, 90))


class Failing:
    """Raises in the forward passes it is told to, in the middle of their layers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, exc: Exception, when: Callable[[Any], bool]) -> None:
        self.passes = 0
        attend = PagedAttention.attend

        def failing(step: Any, call: Any) -> Any:
            if call.layer == 1 and when(step):
                self.passes += 1
                raise exc
            return attend(step, call)

        monkeypatch.setattr(PagedAttention, "attend", failing)


@pytest.mark.parametrize(
    "exc", [torch.OutOfMemoryError(CUDA_MEMORY), RuntimeError(CPU_MEMORY)], ids=["cuda", "cpu"]
)
async def test_memory_that_runs_out_costs_the_largest_request_alone(
    open_engine: Opener, monkeypatch: pytest.MonkeyPatch, exc: Exception
) -> None:
    """The pass is made again without it, and its neighbours say what they would have said (S12 c)."""
    async with open_engine() as reader:
        alone = [await reader.complete(greedy(prompt)) for prompt in (SHORT, SHORT[:3], LONG)]
        failing = Failing(monkeypatch, exc, lambda step: len(step._batch.slots) > 40)
        others = [reader.submit(greedy(prompt)) for prompt in (SHORT, SHORT[:3])]
        await reader.read_until(lambda: bool(others[0].tokens))
        # Fresh to the cache, or there were too little left to compute.
        large = reader.submit(greedy(tuple(reversed(LONG))))
        await reader.read_until(lambda: large.is_ended)
        await reader.read_to_end(*others)
        monkeypatch.undo()
        after = await reader.complete(greedy(LONG))
    assert failing.passes == 1
    assert large.error == "the engine ran out of memory for the request"
    assert [heard.tokens for heard in (*others, after)] == [heard.tokens for heard in alone]


async def test_memory_that_stays_away_is_the_end(
    open_engine: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When passes of the smallest size fail one after the other, it is not the requests."""
    async with open_engine() as reader:
        Failing(monkeypatch, torch.OutOfMemoryError(CUDA_MEMORY), lambda _: True)
        heard = [reader.submit(greedy(SHORT)) for _ in range(6)]
        with pytest.raises(EngineDead):
            await reader.read_until(lambda: all(each.is_ended for each in heard))
    assert sum(each.is_ended for each in heard) == 2


@pytest.mark.parametrize(
    "exc",
    [torch.AcceleratorError(ILLEGAL_ADDRESS), RuntimeError(ASSERTION), RuntimeError("nobody knows")],
    ids=["device", "assertion", "unknown"],
)
async def test_a_sick_device_is_the_end(
    open_engine: Opener, monkeypatch: pytest.MonkeyPatch, exc: Exception
) -> None:
    """At once, with its cause, whoever is in the step (S12 d)."""
    async with open_engine() as reader:
        Failing(monkeypatch, exc, lambda _: True)
        reader.submit(greedy(SHORT))
        with pytest.raises(EngineDead) as dead:
            await reader.read_step()
    assert dead.value.__cause__ is exc


@pytest.mark.parametrize(
    ("exc", "is_fatal"),
    [
        (ValueError("the seed of this one"), False),
        (torch.OutOfMemoryError(CUDA_MEMORY), False),
        (torch.AcceleratorError(ILLEGAL_ADDRESS), True),
        (InternalError("a broken invariant"), True),
    ],
    ids=["its data", "memory", "device", "bug"],
)
async def test_what_a_request_breaks_at_its_beginning(
    open_engine: Opener, monkeypatch: pytest.MonkeyPatch, exc: Exception, is_fatal: bool
) -> None:
    """That request fails with its type, without its text; what is fatal everywhere is fatal here (S12 e)."""
    fit_out = Outfitter.fit_out

    def failing(self: Outfitter, sequence: Any) -> None:
        if sequence.spec.prompt == LONG:
            raise exc
        fit_out(self, sequence)

    monkeypatch.setattr(Outfitter, "fit_out", failing)
    async with open_engine() as reader:
        good, bad = reader.submit(greedy(SHORT)), reader.submit(greedy(LONG))
        if is_fatal:
            with pytest.raises(EngineDead):
                await reader.read_until(lambda: bad.is_ended)
            return
        await reader.read_until(lambda: bad.is_ended)
        await reader.read_to_end(good)
    assert bad.error == f"the engine could not begin the request ({type(exc).__name__})"
    assert len(good.tokens) == 12
