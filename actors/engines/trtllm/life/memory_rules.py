"""Which memory TensorRT-LLM can give back, and why it sometimes cannot, from its arguments alone.

It tells only when it is asked, by an error of its worker, and some mistakes it does not tell at all: memory
that is no longer mapped with a cache that still names it, weights that come back empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, cast

from actors.engines.trtllm.config import TrtllmConfig, part_of
from actors.engines.trtllm_facts import KV_CACHE, MEMORIES

__all__ = ["KV_CACHE", "MEMORIES", "WEIGHTS", "MemoryRules"]

WEIGHTS = frozenset({"model_weights", "draft_model_weights"})
# Names of its `RestoreMode` that keep the content in the host's memory.
_KEEPING = frozenset({"CPU", "PINNED"})
_KEEPS_CACHE = "sleep_config: {restore_modes: {kv_cache: PINNED}}"
_NEEDS_REUSE_OFF = (
    "kv_cache loses its content, and with kv_cache_config.enable_block_reuse the engine would still answer "
    "from it: set that to false, or sleep_config.restore_modes.kv_cache to PINNED or CPU"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRules:
    """What is asked of the arguments.

    impossible: why nothing can be given back, for the operator; "" where something can.
    lost: memories whose content a sleep throws away. reuses_blocks: prompts are answered from the KV cache.
    has_foreign_weights: another process holds them, so that a sleep would silently leave them where they are.
    """

    impossible: str = ""
    lost: frozenset[str] = frozenset({KV_CACHE})
    reuses_blocks: bool = False
    has_foreign_weights: bool = False

    @classmethod
    def of(cls, config: TrtllmConfig) -> MemoryRules:
        """From the arguments of an engine."""
        return cls.of_arguments(config.arguments)

    @classmethod
    def of_arguments(cls, arguments: Mapping[str, Any]) -> MemoryRules:
        """From merged arguments; their groups may be mappings or TensorRT-LLM's own objects."""
        return cls(
            impossible=_why_impossible(arguments),
            lost=_lost(part_of(arguments, "sleep_config", "restore_modes", {})),
            reuses_blocks=_reuses_blocks(arguments),
            has_foreign_weights=_word(arguments.get("load_format")).lower() == "gms",
        )

    def refusal(self, memories: tuple[str, ...]) -> str:
        """Why a sleep of these is refused, in words for the operator; "" where it is not."""
        if self.impossible:
            return self.impossible
        if not memories:
            return f"no memory is named: any of {', '.join(MEMORIES)}"
        return next((reason for reason in map(self._about, memories) if reason), "")

    def _about(self, memory: str) -> str:
        if memory not in MEMORIES:
            return f"{memory!r} is no memory of this engine: {_nearest(memory)}any of {', '.join(MEMORIES)}"
        if memory in WEIGHTS and self.has_foreign_weights:
            return (
                f"{memory}: --load-format gms keeps weights in another process, which alone can release them"
            )
        if memory != KV_CACHE and memory in self.lost:
            return f"{memory} would be lost: set sleep_config.restore_modes.{memory} to PINNED or CPU"
        if memory == KV_CACHE and memory in self.lost and self.reuses_blocks:
            return _NEEDS_REUSE_OFF
        return ""


def _why_impossible(arguments: Mapping[str, Any]) -> str:
    backend = _word(arguments.get("backend")) or "pytorch"
    if backend != "pytorch":
        return f"the back-end {backend} cannot sleep: only pytorch can"
    if _word(arguments.get("orchestrator_type")) == "ray":
        return "orchestrator_type ray cannot sleep here: leave it out"
    if arguments.get("encode_only"):
        return "an engine that only encodes cannot sleep"
    if arguments.get("sleep_config") is None:
        return f"sleep_config is not set: put `{_enough(arguments)}` into --extra-engine-args"
    return ""


def _enough(arguments: Mapping[str, Any]) -> str:
    """The least that lets a KV cache sleep. With block reuse its content has to come back."""
    return _KEEPS_CACHE if _reuses_blocks(arguments) else "sleep_config: {}"


def _reuses_blocks(arguments: Mapping[str, Any]) -> bool:
    return bool(part_of(arguments, "kv_cache_config", "enable_block_reuse", default=True))


def _lost(modes: Mapping[object, object]) -> frozenset[str]:
    """A memory without a mode has TensorRT-LLM's default: the KV cache is lost, all else is kept."""
    known = {_word(memory): _mode(mode) for memory, mode in modes.items()}
    lost = {memory for memory, mode in known.items() if mode not in _KEEPING}
    return frozenset(lost | ({KV_CACHE} - known.keys()))


def _word(value: object) -> str:
    """A text, or the value of an enum's member."""
    return str(cast("object", getattr(value, "value", value) or ""))


def _mode(value: object) -> str:
    """The name of an enum's member, or a text."""
    return str(cast("object", getattr(value, "name", value))).upper()


def _nearest(word: str) -> str:
    found = get_close_matches(word, MEMORIES, n=1)
    return f"is {found[0]} meant? " if found else ""
