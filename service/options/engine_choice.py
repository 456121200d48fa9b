"""Which engine runs, and why. Pure: facts in, choice or reason out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

EngineName = Literal["trtllm", "torch", "synthetic"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """What the machine has.

    tensorrt_installed: the distribution tensorrt-llm. torch_installed: the package torch.
    tensorrt_problem: why tensorrt_llm cannot be imported, "" if it can.
    gpus: NVIDIA devices this process may see. tensorrt_version, xgrammar_version: of the distributions, ""
    without one.
    """

    tensorrt_installed: bool
    torch_installed: bool
    gpus: int
    tensorrt_problem: str = ""
    tensorrt_version: str = ""
    xgrammar_version: str = ""


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The engine and the half sentence that explains it."""

    engine: EngineName
    reason: str


class EngineChoiceError(ValueError):
    """No engine can be chosen. The text says what to do."""


class NoGpuError(EngineChoiceError):
    """The chosen engine's GPU is not there now: a driver that is late at boot may still bring it."""


def expected_engine(requested: str, facts: EngineFacts, tensorrt_options: Sequence[str] = ()) -> EngineName:
    """The engine a configuration is for; whether it can run here, `choose_engine` says."""
    if requested == "auto":
        return "trtllm" if facts.tensorrt_installed or tensorrt_options else "torch"
    return cast("EngineName", requested)


def choose_engine(requested: str, facts: EngineFacts, tensorrt_options: Sequence[str] = ()) -> EngineChoice:
    """Choose by the word of ``--engine``. Raises EngineChoiceError; NoGpuError where only a GPU is missing.

    ``auto`` never turns a broken TensorRT-LLM into a slow CPU worker: where TensorRT-LLM is installed, or
    its options are given, torch has to be asked for.
    """
    if requested == "synthetic":
        return EngineChoice("synthetic", "asked for with --engine synthetic")
    if requested == "torch":
        return _torch(facts, "asked for with --engine torch")
    if requested == "trtllm":
        return _tensorrt(facts, "asked for with --engine trtllm")
    if facts.tensorrt_installed:
        return _tensorrt(facts, "tensorrt-llm is installed")
    if tensorrt_options:
        raise EngineChoiceError(
            f"{', '.join(tensorrt_options)}: asks for TensorRT-LLM, which is not installed; install it, or "
            "give --engine torch to serve without it"
        )
    return _torch(facts, "tensorrt-llm is not installed")


def _torch(facts: EngineFacts, reason: str) -> EngineChoice:
    if not facts.torch_installed:
        raise EngineChoiceError(
            "torch is not installed: install it, or give --engine synthetic to serve no model"
        )
    return EngineChoice("torch", reason)


def _tensorrt(facts: EngineFacts, reason: str) -> EngineChoice:
    if not facts.tensorrt_installed:
        raise EngineChoiceError("tensorrt-llm is not installed: install it, or give --engine torch")
    if facts.tensorrt_problem:
        raise EngineChoiceError(
            f"tensorrt-llm is installed but cannot be imported ({facts.tensorrt_problem}): repair it, or "
            "give --engine torch"
        )
    if facts.gpus == 0:
        raise NoGpuError(
            "tensorrt-llm is installed but no GPU is visible: check the driver and CUDA_VISIBLE_DEVICES, or "
            "give --engine torch"
        )
    return EngineChoice("trtllm", reason)
