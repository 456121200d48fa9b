"""What the tests of the options start from: a framework, an empty environment, short ways to load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from service.options import ConfigError, EngineFacts, FrameworkFacts, Settings, load_settings
from service.options.tables import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from service.options.engine_arguments import EngineArguments
    from service.options.option import Option

_COMMON_FIELDS = ("namespace", "kv_state_endpoint", "default_thinking_mode")


def framework(version: str = "1.4.2", *extra_fields: str) -> FrameworkFacts:
    """A framework with the fields of 1.4 and two parsers of each sort."""
    return FrameworkFacts(
        version=version,
        worker_config_fields=frozenset([*_COMMON_FIELDS, *(extra_fields or ("structural_tag_mode",))]),
        tool_parsers=lambda: ["hermes", "mistral"],
        reasoning_parsers=lambda: ["basic", "qwen3"],
    )


NEW_FRAMEWORK = framework("1.6.1", "structural_tag", "response_plane")
TORCH_ONLY = EngineFacts(tensorrt_installed=False, torch_installed=True, gpus=0)


def load(
    *argv: str,
    env: Mapping[str, str] | None = None,
    facts: FrameworkFacts | None = None,
    installed: EngineFacts = TORCH_ONLY,
) -> Settings:
    """Settings from these words and this environment only, on a machine with ``installed``."""
    return load_settings(argv, env or {}, facts or framework(), installed)


def refused(
    *argv: str,
    env: Mapping[str, str] | None = None,
    facts: FrameworkFacts | None = None,
    installed: EngineFacts = TORCH_ONLY,
) -> str:
    """The lines of the error these words lead to."""
    with pytest.raises(ConfigError) as caught:
        load(*argv, env=env, facts=facts, installed=installed)
    return str(caught.value)


def with_tensorrt(version: str = "1.3.0rc22", gpus: int = 1) -> EngineFacts:
    """A machine with TensorRT-LLM and a GPU, or more."""
    return EngineFacts(tensorrt_installed=True, torch_installed=True, gpus=gpus, tensorrt_version=version)


def options(names: Sequence[str] = ()) -> list[Option]:
    """Options of the table: all, or those with these names."""
    return [option for option in OPTIONS if not names or option.name in names]


def value(arguments: EngineArguments | None, path: str) -> object:
    """What `LLM` gets there; None where it gets nothing."""
    assert arguments is not None
    found: Any = arguments.values
    for name in path.split("."):
        found = (found or {}).get(name)
    return found
