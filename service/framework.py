"""The installed framework: which version, which fields, built from what it has.

1.4.2 is pinned and tested; 1.4.2 up to 1.6.x is accepted. Dataclasses of the framework gained and
lost fields in between, so we fill those that are there; the options refuse what needs one that is not.
"""

from __future__ import annotations

import re
from dataclasses import fields
from importlib import metadata
from typing import Any

from dynamo.common.backend.worker import WorkerConfig

from service.options.framework import FrameworkFacts

OLDEST = (1, 4, 2)
BEYOND = (1, 7)
_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")


class UnsupportedFramework(Exception):
    """The installed ai-dynamo is outside the range this worker was built for."""


def installed_version() -> str:
    """Version of the ai-dynamo distribution."""
    return metadata.version("ai-dynamo")


def check_version(version: str) -> None:
    """Raises UnsupportedFramework outside of [1.4.2, 1.7). A pre-release counts as what it precedes."""
    match = _VERSION.match(version)
    numbers = tuple(int(part or 0) for part in match.groups()) if match else ()
    if not OLDEST <= numbers < BEYOND:
        raise UnsupportedFramework(
            f"ai-dynamo {version} is installed; this worker supports 1.4.2 up to, not including, 1.7"
        )


def installed_fields(dataclass: type[Any]) -> frozenset[str]:
    """Names of the fields that this framework's dataclass has."""
    return frozenset(field.name for field in fields(dataclass))


def build_worker_config(wanted: dict[str, Any]) -> WorkerConfig:
    """WorkerConfig from the fields that this framework has. The options refuse what it has not."""
    known = installed_fields(WorkerConfig)
    return WorkerConfig(**{name: value for name, value in wanted.items() if name in known})


def framework_facts() -> FrameworkFacts:
    """What the options need to know. Parser names are asked for only when somebody names a parser."""
    return FrameworkFacts(
        version=installed_version(),
        worker_config_fields=installed_fields(WorkerConfig),
        tool_parsers=_tool_parsers,
        reasoning_parsers=_reasoning_parsers,
    )


def _tool_parsers() -> list[str]:
    from dynamo._core import get_tool_parser_names  # noqa: PLC0415 - asked for rarely

    return list(get_tool_parser_names())


def _reasoning_parsers() -> list[str]:
    from dynamo._core import get_reasoning_parser_names  # noqa: PLC0415 - asked for rarely

    return list(get_reasoning_parser_names())
