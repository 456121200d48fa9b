"""Which engine a configuration was written for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.options.engine_choice import EngineFacts, EngineName, expected_engine
from service.options.option import Group

if TYPE_CHECKING:
    from service.options.resolve import Resolution, Resolved


def engine_of(resolution: Resolution, facts: EngineFacts) -> EngineName:
    """The word of ``--engine``, or what ``auto`` comes to on this machine."""
    return expected_engine(resolution.get("engine", str), facts, tensorrt_options(resolution))


def tensorrt_options(resolution: Resolution) -> tuple[str, ...]:
    """What was given that only TensorRT-LLM can do: its options, be it with their default, and values."""
    options = [item.where for item in resolution.items() if item.is_given and _means_tensorrt(item)]
    return (*options, *(given.source.name for given in resolution.engine_arguments()))


def _means_tensorrt(item: Resolved) -> bool:
    refusal = item.option.refusal
    return item.option.group is Group.TENSORRT or (
        refusal is not None and item.value in refusal.engine_values
    )
