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
    version = _version_of("tensorrt-llm")
    has_tensorrt = bool(version)
    is_findable = has_package("tensorrt_llm")
    return EngineFacts(
        tensorrt_installed=has_tensorrt,
        tensorrt_problem="" if is_findable or not has_tensorrt else "no module named tensorrt_llm",
        torch_installed=has_package("torch"),
        gpus=_visible_gpus(environ),
        tensorrt_version=version,
        xgrammar_version=_version_of("xgrammar"),
    )


def memory_bytes() -> int:
    """Physical memory of the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))


def has_package(name: str) -> bool:
    """Whether a package could be imported, as far as one can tell without doing it."""
    return importlib.util.find_spec(name) is not None


def _version_of(distribution: str) -> str:
    """Empty when it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _visible_gpus(environ: Mapping[str, str]) -> int:
    present = len(list(_DEVICES.glob("nvidia[0-9]*")))
    chosen = environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return present
    listed = [word for word in chosen.split(",") if word.strip() and word.strip() != "-1"]
    return min(present, len(listed))
