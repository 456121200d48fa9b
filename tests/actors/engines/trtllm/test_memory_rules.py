"""Which memory can be given back: what the arguments of TensorRT-LLM say about it before it is asked."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from actors.engines.trtllm.config import TrtllmConfig
from actors.engines.trtllm.life.memory_rules import MEMORIES, MemoryRules

ABLE: dict[str, Any] = {"sleep_config": {}, "kv_cache_config": {"enable_block_reuse": False}}


class Mode(Enum):
    """As the library's own."""

    NONE = 0
    PINNED = 3


class Tag(Enum):
    """As the library's own."""

    KV_CACHE = "kv_cache"
    MODEL_WEIGHTS_MAIN = "model_weights"


def refusal(memory: str, **arguments: Any) -> str:
    """Why one memory is refused with these arguments, on top of those with which everything can sleep."""
    config = TrtllmConfig(
        model_path=Path("model"), vocab_size=8, context_length=8, arguments=ABLE | arguments
    )
    return MemoryRules.of(config).refusal((memory,))


@pytest.mark.parametrize("memory", MEMORIES)
def test_every_memory_of_the_library_can_sleep(memory: str) -> None:
    """With a sleep_config, and without block reuse."""
    assert refusal(memory) == ""


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"sleep_config": None}, "sleep_config"),
        ({"backend": "_autodeploy"}, "_autodeploy"),
        ({"orchestrator_type": "ray"}, "orchestrator_type ray"),
        ({"encode_only": True}, "encodes"),
    ],
)
def test_an_engine_that_cannot_sleep_is_refused_by_name(arguments: dict[str, Any], named: str) -> None:
    """Whatever memory is named."""
    for memory in ("kv_cache", "model_weights", "nonsense"):
        assert named in refusal(memory, **arguments)


@pytest.mark.parametrize("reuse", [{}, {"enable_block_reuse": True}, {"enable_block_reuse": False}])
def test_what_a_refusal_says_is_enough_to_sleep(reuse: dict[str, bool]) -> None:
    """Whoever does it is not refused again for another reason."""
    said = refusal("kv_cache", sleep_config=None, kv_cache_config=reuse)
    advice: dict[str, Any] = yaml.safe_load(said.split("`")[1])
    assert refusal("kv_cache", **advice, kv_cache_config=reuse) == ""


@pytest.mark.parametrize(
    ("word", "nearest"),
    [("kvcache", "kv_cache"), ("model_weight", "model_weights"), ("KV_CACHE", ""), ("", "")],
)
def test_an_unknown_memory_is_refused_with_the_nearest_right_one(word: str, nearest: str) -> None:
    """And with all that there are."""
    said = refusal(word)
    assert repr(word) in said
    assert ", ".join(MEMORIES) in said
    assert f"is {nearest} meant?" in said or not nearest


def test_no_memory_at_all_is_refused() -> None:
    """Nothing would be given back, and the caller expects that something is."""
    config = TrtllmConfig(model_path=Path("model"), vocab_size=8, context_length=8, arguments=ABLE)
    assert "no memory is named" in MemoryRules.of(config).refusal(())


@pytest.mark.parametrize(
    ("kv_cache_config", "modes", "is_refused"),
    [
        ({}, {}, True),
        (SimpleNamespace(enable_block_reuse=True), {}, True),
        (SimpleNamespace(enable_block_reuse=False), {}, False),
        ({"enable_block_reuse": True}, {"kv_cache": "NONE"}, True),
        ({"enable_block_reuse": True}, {"kv_cache": "memset"}, True),
        ({"enable_block_reuse": True}, {"kv_cache": "PINNED"}, False),
        ({"enable_block_reuse": True}, {Tag.KV_CACHE: Mode.PINNED}, False),
        ({"enable_block_reuse": True}, {Tag.KV_CACHE: Mode.NONE}, True),
    ],
)
def test_a_cache_whose_lost_blocks_would_answer_prompts_is_refused(
    kv_cache_config: object, modes: dict[Any, Any], is_refused: bool
) -> None:
    """The engine does not forget what it had in it; groups are mappings or objects."""
    for sleep_config in ({"restore_modes": modes}, SimpleNamespace(restore_modes=modes)):
        said = refusal("kv_cache", kv_cache_config=kv_cache_config, sleep_config=sleep_config)
        assert ("enable_block_reuse" in said) is is_refused


def test_weights_that_would_be_lost_are_refused() -> None:
    """Nothing loads them again, and an engine without them answers all the same."""
    said = refusal("model_weights", sleep_config={"restore_modes": {Tag.MODEL_WEIGHTS_MAIN: Mode.NONE}})
    assert "restore_modes.model_weights" in said
    assert refusal("draft_model_weights") == ""


def test_weights_of_another_process_are_refused() -> None:
    """A sleep would leave them where they are without a word; the cache is the engine's own."""
    assert "gms" in refusal("model_weights", load_format="gms")
    assert refusal("kv_cache", load_format="gms") == ""
