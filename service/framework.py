"""The installed framework: which version, which fields, built from what it has.

1.4.2 is pinned and tested; 1.4.2 up to 1.6.x is accepted. Dataclasses of the framework gained and
lost fields in between, so we fill those that are there and say so when one we were asked to set is not.
"""

from __future__ import annotations

from dataclasses import fields
from importlib import metadata
from typing import Any

from dynamo.common.backend.worker import WorkerConfig

OLDEST = (1, 4, 2)
BEYOND = (1, 7, 0)


class UnsupportedFramework(Exception):
    """The installed ai-dynamo is outside the range this worker was built for."""


def installed_version() -> str:
    """Version of the ai-dynamo distribution."""
    return metadata.version("ai-dynamo")


def check_version(version: str) -> None:
    """Raises UnsupportedFramework outside of [1.4.2, 1.7)."""
    numbers = tuple(int(part) for part in version.split(".")[:3] if part.isdigit())
    if not OLDEST <= numbers < BEYOND:
        raise UnsupportedFramework(
            f"ai-dynamo {version} is installed; this worker supports 1.4.2 up to, not including, 1.7"
        )


def installed_fields(dataclass: type[Any]) -> frozenset[str]:
    """Names of the fields that this framework's dataclass has."""
    return frozenset(field.name for field in fields(dataclass))


def build_worker_config(wanted: dict[str, Any]) -> tuple[WorkerConfig, list[str]]:
    """WorkerConfig from the fields this framework has; the names it does not have come back.

    A field that is None or False counts as not asked for.
    """
    known = installed_fields(WorkerConfig)
    missing = [name for name, value in wanted.items() if name not in known and value not in (None, False)]
    return WorkerConfig(**{name: value for name, value in wanted.items() if name in known}), missing
