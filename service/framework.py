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
from dynamo.common.constants import DisaggregationMode

from protocols.spec import Stage
from service.options.framework import FrameworkFacts

OLDEST = (1, 4, 2)
BEYOND = (1, 7)
# From here on a frontend draws conclusions from the status of an error (1.5 is not measured).
_READS_STATUS = (1, 5)
_GATEWAY_TIMEOUT = 504
_CLIENT_CLOSED_REQUEST = 499
_MODES = {
    Stage.WHOLE: DisaggregationMode.AGGREGATED,
    Stage.PREFILL: DisaggregationMode.PREFILL,
    Stage.DECODE: DisaggregationMode.DECODE,
}
_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")


class UnsupportedFramework(Exception):
    """The installed ai-dynamo is outside the range this worker was built for."""


def installed_version() -> str:
    """Version of the ai-dynamo distribution."""
    return metadata.version("ai-dynamo")


def check_version(version: str) -> None:
    """Raises UnsupportedFramework outside of [1.4.2, 1.7). A pre-release counts as what it precedes."""
    if not OLDEST <= _numbers(version) < BEYOND:
        raise UnsupportedFramework(
            f"ai-dynamo {version} is installed; this worker supports 1.4.2 up to, not including, 1.7"
        )


def deadline_status(version: str) -> int:
    """The HTTP status to raise for a request whose deadline passed.

    Measured: a frontend of 1.6.1 takes 504 and 408 for a worker that it cannot reach, and keeps it out
    of routing for five seconds; no single request may do that to its neighbours. 499 harms nobody, and
    nobody sends the request again. 1.4.2 has no such rule.
    """
    return _GATEWAY_TIMEOUT if _numbers(version) < _READS_STATUS else _CLIENT_CLOSED_REQUEST


def installed_fields(dataclass: type[Any]) -> frozenset[str]:
    """Names of the fields that this framework's dataclass has."""
    return frozenset(field.name for field in fields(dataclass))


def build_worker_config(wanted: dict[str, Any]) -> WorkerConfig:
    """WorkerConfig from the fields that this framework has. The options refuse what it has not."""
    known = installed_fields(WorkerConfig)
    return WorkerConfig(**{name: value for name, value in wanted.items() if name in known})


def mode_of(role: Stage) -> DisaggregationMode:
    """Under which of its words the framework registers a worker with this role."""
    return _MODES[role]


def framework_facts() -> FrameworkFacts:
    """What the options need to know. Parser names are asked for only when somebody names a parser."""
    return FrameworkFacts(
        version=installed_version(),
        worker_config_fields=installed_fields(WorkerConfig),
        tool_parsers=_tool_parsers,
        reasoning_parsers=_reasoning_parsers,
    )


def _numbers(version: str) -> tuple[int, ...]:
    """Major, minor, patch; empty for what is no version."""
    match = _VERSION.match(version)
    return tuple(int(part or 0) for part in match.groups()) if match else ()


def _tool_parsers() -> list[str]:
    from dynamo._core import get_tool_parser_names  # noqa: PLC0415 - asked for rarely

    return list(get_tool_parser_names())


def _reasoning_parsers() -> list[str]:
    from dynamo._core import get_reasoning_parser_names  # noqa: PLC0415 - asked for rarely

    return list(get_reasoning_parser_names())
