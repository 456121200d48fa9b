"""What follows from an operator's arguments, before the library is there."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from actors.engines.trtllm.config import TrtllmConfig
from protocols.errors import EngineStartError, StartFault


class Policy(Enum):
    """As the library's own."""

    FCFS = "fcfs"
    PRIORITY = "priority"


def config(**arguments: Any) -> TrtllmConfig:
    """With these keywords of ``LLM``."""
    return TrtllmConfig(model_path=Path("model"), vocab_size=8, context_length=8, arguments=arguments)


@pytest.mark.parametrize(
    ("policy", "is_heeded"),
    [
        ("priority", True),
        (Policy.PRIORITY, True),
        ("PRIORITY", False),
        ("by_priority", False),
        ("fcfs", False),
        (Policy.FCFS, False),
        (None, False),
    ],
)
def test_priorities_are_heeded_by_the_library_s_own_word_alone(policy: object, is_heeded: bool) -> None:
    """Another spelling it does not know: a request that brings a priority must not be sent one."""
    assert config(scheduler_config={"waiting_queue_policy": policy}).is_priority_heeded is is_heeded
    as_object = SimpleNamespace(waiting_queue_policy=policy)
    assert config(scheduler_config=as_object).is_priority_heeded is is_heeded
    assert not config().is_priority_heeded


def test_an_adapter_is_called_as_its_folder(tmp_path: Path) -> None:
    """One that is given twice is one, be it by a link of the same name."""
    law, elsewhere = tmp_path / "law", tmp_path / "links" / "law"
    law.mkdir()
    elsewhere.parent.mkdir()
    elsewhere.symlink_to(law)
    folders = [str(law), f"{law}/", str(elsewhere), str(tmp_path / "tax")]
    assert config(lora_config={"lora_dir": folders}).adapters == {"law": law, "tax": tmp_path / "tax"}


@pytest.mark.parametrize(
    ("arguments", "tokenizer"),
    [
        ({"lora_config": {"lora_dir": ["/a/law"]}}, "model"),
        ({"lora_config": {"lora_dir": ["/a/law"]}, "tokenizer": "own"}, "own"),
        ({"lora_config": {"lora_dir": ["/a/law"]}, "skip_tokenizer_init": True}, None),
        ({"lora_config": {"lora_dir": ["/a/law", "/a/tax"]}}, None),
        ({}, None),
    ],
)
def test_one_adapter_brings_no_tokenizer(arguments: dict[str, Any], tokenizer: str | None) -> None:
    """The library would take it, also for the model itself: constraints would be tried with another one."""
    settings = config(**arguments)
    assert settings.keywords.get("tokenizer") == tokenizer
    assert {**settings.keywords, "tokenizer": None} == {**arguments, "tokenizer": None}


def test_two_adapters_of_one_name_are_refused_with_both_folders() -> None:
    """Nobody could say which of them a request means."""
    with pytest.raises(EngineStartError, match=r"/a/law and /b/law") as caught:
        _ = config(lora_config={"lora_dir": ["/a/law", "/a/tax", "/b/law"]}).adapters
    assert caught.value.fault is StartFault.CONFIGURATION
