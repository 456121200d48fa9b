"""KV caches that nobody wants any more: of requests that ended before a decode engine heard of them.

A prefill worker keeps what it has handed over until somebody fetches it or its time-out has passed, a
minute by default. A burst of callers who leave while their prompts are computed would fill its memory with
such caches, and it would answer nobody. So the engine gets these requests all the same, and is told to end
them with their first token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from protocols.engine import EngineInfo, SpecPreparer
from protocols.errors import RequestError
from protocols.spec import GenerationSpec, Stage, StopRules

MOST_UNCLAIMED = 64
"""Sequences beyond the engine's capacity. More are left to the time-out of their prefill worker."""


def has_handoff(wire: object) -> bool:
    """Whether a request brings what a prefill worker handed over. Asked before anything is decoded."""
    match wire:
        case {"prefill_result": {"disaggregated_params": object() as found}}:
            return isinstance(found, Mapping) and bool(cast("Mapping[str, Any]", found))
        case _:
            return False


def unclaimed_spec(
    wire: Mapping[str, Any], info: EngineInfo, preparer: SpecPreparer | None
) -> GenerationSpec | None:
    """The least that an engine must be asked for so that it fetches a cache. None where that cannot be.

    wire: of a request with a hand-off; nothing else of it has been looked at, or it was refused.
    """
    prompt: object = wire.get("token_ids")
    if not _is_prompt(prompt, info) or preparer is None:
        return None
    spec = GenerationSpec(
        prompt=tuple(cast("list[int]", prompt)),
        stop=StopRules(max_tokens=1),
        stage=Stage.DECODE,
        handoff=wire["prefill_result"]["disaggregated_params"],
    )
    try:
        return preparer.find(spec)
    except RequestError:
        return None


def _is_prompt(found: object, info: EngineInfo) -> bool:
    if not isinstance(found, list) or not 0 < len(cast("list[object]", found)) < info.context_length:
        return False
    return all(type(token) is int and 0 <= token < info.vocab_size for token in cast("list[object]", found))
