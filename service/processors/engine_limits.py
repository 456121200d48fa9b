"""What of TensorRT-LLM goes together with logits processors, by its arguments and before anything loads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from protocols.spec import Stage
from service.options.errors import Problem

if TYPE_CHECKING:
    from service.options.engine_arguments import EngineArguments

_OVERLAP, _PARTS, _DRAFTS = "disable_overlap_scheduler", "enable_chunked_prefill", "speculative_config"

_ONE_OF_SEVERAL = (
    "TensorRT-LLM asks logits processors about one token of a step and chooses several; leave it out, or the "
    "processors"
)
_PARTS_OR_TOKENS = (
    "logits processors could not tell the parts of a long prompt from tokens; leave it out, or give "
    f"{_OVERLAP}: true, or no processors"
)
_BEHIND = f"the ids they are shown lack the newest one; {_OVERLAP}: true shows it"


def misfits(arguments: EngineArguments) -> Iterator[Problem]:
    """What was given that logits processors cannot work with; nothing for a prefill, which runs none."""
    if arguments.role is Stage.PREFILL:
        return
    if arguments.values.get(_DRAFTS) is not None:
        yield Problem(_place(arguments, _DRAFTS), None, _ONE_OF_SEVERAL)
    if arguments.has_chunked_prefill and _is_overlapped(arguments):
        yield Problem(_place(arguments, _PARTS), True, _PARTS_OR_TOKENS)


def remarks(arguments: EngineArguments) -> Iterator[str]:
    """What they should know who write processors for it."""
    if arguments.role is not Stage.PREFILL and _is_overlapped(arguments):
        yield _BEHIND


def _is_overlapped(arguments: EngineArguments) -> bool:
    """Whether a step begins before the engine knows what the one before it chose."""
    return not arguments.values.get(_OVERLAP)


def _place(arguments: EngineArguments, name: str) -> str:
    """Who gave it, with its name."""
    for path, leaf in arguments.origins:
        if (path == name or path.startswith(f"{name}.")) and leaf.where:
            return leaf.where if leaf.where.endswith(path) else f"{leaf.where}: {name}"
    return name
