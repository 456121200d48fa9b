"""The facts about this machine that the checks need. Nothing heavy is imported to find them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING

from service.options.engine_choice import EngineFacts

if TYPE_CHECKING:
    from collections.abc import Mapping

_DEVICES = Path("/dev")


def read_engine_facts(environ: Mapping[str, str]) -> EngineFacts:
    """What is installed and visible here. A package that is found may still fail when it is imported."""
    has_tensorrt = _has_distribution("tensorrt-llm")
    is_findable = importlib.util.find_spec("tensorrt_llm") is not None
    return EngineFacts(
        tensorrt_installed=has_tensorrt,
        tensorrt_problem="" if is_findable or not has_tensorrt else "no module named tensorrt_llm",
        torch_installed=importlib.util.find_spec("torch") is not None,
        gpus=_visible_gpus(environ),
    )


def memory_bytes() -> int:
    """Physical memory of the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))


def _has_distribution(name: str) -> bool:
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _visible_gpus(environ: Mapping[str, str]) -> int:
    present = len(list(_DEVICES.glob("nvidia[0-9]*")))
    chosen = environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return present
    listed = [word for word in chosen.split(",") if word.strip() and word.strip() != "-1"]
    return min(present, len(listed))
