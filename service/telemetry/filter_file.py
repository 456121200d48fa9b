"""The framework's file of log filters (TOML), looked at before the framework reads it.

One that is no TOML ends the process in a traceback of the framework's library, and a level that is none
silences everybody without a word (measured: 1.4.2).
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from service.options.errors import ConfigError, Problem
from service.telemetry.dyn_log import LEVELS, level_named

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_VARIABLE = "DYN_LOGGING_CONFIG_PATH"
_EVERYWHERE = "/opt/dynamo/etc/logging.toml"
_ALLOWED = f"one of {', '.join(LEVELS)}"


def has_filter_file(environ: Mapping[str, str]) -> bool:
    """Whether a file has a say as well, which only the framework obeys."""
    return any(True for _ in _files(environ))


def check_filter_files(environ: Mapping[str, str]) -> None:
    """Raises ConfigError for what the framework could not follow. A file that is not there is none."""
    problems = [problem for path in _files(environ) for problem in _problems_of(path)]
    if problems:
        raise ConfigError(problems)


def _files(environ: Mapping[str, str]) -> Iterator[Path]:
    for name in (environ.get(_VARIABLE), _EVERYWHERE):
        if name and Path(name).is_file():
            yield Path(name)


def _problems_of(path: Path) -> Iterator[Problem]:
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        yield Problem(_VARIABLE, str(path), f"a TOML file ({exc})")
        return
    level: Any = found.get("log_level", "info")
    if not _is_level(level):
        yield Problem(f"{path}: log_level", level, _ALLOWED)
    filters: Any = found.get("log_filters", {})
    if not isinstance(filters, dict):
        yield Problem(f"{path}: log_filters", cast("object", filters), "a table of targets and their levels")
        return
    for target, word in cast("dict[str, object]", filters).items():
        if not _is_level(word):
            yield Problem(f"{path}: log_filters: {target}", word, _ALLOWED)


def _is_level(found: object) -> bool:
    return isinstance(found, str) and level_named(found) is not None
