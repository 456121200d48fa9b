"""What people read on the terminal: the help, the resolved configuration, its dump."""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING

from service.options.option import Group, Option
from service.options.tables import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from service.options.check import Finding
    from service.options.resolve import Resolved
    from service.options.settings import Settings

_WIDTH = 100
_INDENT = " " * 6
_INTRODUCTION = """\
usage: dynamo-actor-worker [COMMAND] [--flag VALUE ...]

Serves a model as a worker of NVIDIA Dynamo, with the flags of `python -m dynamo.trtllm`.
COMMAND: serve (the default), demo, model, trace, log-level, drain, resume,
sleep, wake, status.
A flag wins over its variable, a variable over --config FILE, a file over the default.
Every switch --x has a --no-x form.
"""


def early_answer(argv: Sequence[str], version: str) -> str | None:
    """The text for ``--help`` or ``--version``, which are answered however wrong the rest is; else None."""
    if "--help" in argv or "-h" in argv:
        return help_text()
    return f"dynamo-actor-worker {version}\n" if "--version" in argv else None


def help_text() -> str:
    """Every option by group: in full where it works, by name where it is refused."""
    parts = [_INTRODUCTION]
    for group in Group:
        options = [option for option in OPTIONS if option.group is group]
        working = [option for option in options if option.is_usable]
        refused = [option.title for option in options if not option.is_usable]
        if working:
            parts.append(f"{group.value}:\n" + "".join(_describe(option) for option in working))
        if refused:
            names = "".join(f"  {line}\n" for line in _wrap(", ".join(refused), _WIDTH - 2))
            parts.append(f"{group.value}, refused in this release except with their defaults:\n{names}")
    return "\n".join(parts)


def _describe(option: Option) -> str:
    names = ", ".join(option.flags()) or option.title
    value = "" if option.is_switch or option.flag is None else " VALUE"
    facts = f"env: {option.env or '-'} | default: {_defaults(option)}"
    if option.is_for_some_engines and option.refusal is not None:
        facts += f" | engine: {', '.join(option.refusal.engines)}"
    if not option.is_switch:
        facts += f" | allowed: {option.kind.allowed}"
    lines = [line for text in (option.help, facts) for line in _wrap(text, _WIDTH - len(_INDENT))]
    return f"  {names}{value}\n" + "".join(f"{_INDENT}{line}\n" for line in lines)


def _defaults(option: Option) -> str:
    others = (f"; {engine}: {option.show(value)}" for engine, value in option.engine_defaults)
    return option.show(option.default) + "".join(others)


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False)


def print_config(settings: Settings) -> str:
    """Each option, its value and its source as aligned columns; secrets masked.

    Below them, for TensorRT-LLM, the arguments it is built with, in the same form.
    """
    rows = [(item.option.title, item.option.show(item.value), _source(item)) for item in _shown(settings)]
    if settings.engine_arguments is None:
        return _columns(rows)
    return (
        f"{_columns(rows)}\nTensorRT-LLM is built with:\n{_columns(list(settings.engine_arguments.rows()))}"
    )


def _columns(rows: Sequence[tuple[str, str, str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return "".join(f"{title:<{widths[0]}}  {value:<{widths[1]}}  {source}\n" for title, value, source in rows)


def config_json(settings: Settings) -> str:
    """The same as JSON, for ``--dump-config-to``."""
    shown: dict[str, object] = {
        item.option.name: {"value": item.option.show(item.value), "source": str(item.source)}
        for item in _shown(settings)
    }
    if settings.engine_arguments is not None:
        shown["engine_arguments"] = settings.engine_arguments.masked_values()
    return json.dumps(shown, indent=2) + "\n"


def findings_text(findings: Sequence[Finding]) -> str:
    """The report of ``--check-config``, a finding a line."""
    return "".join(f"{finding}\n" for finding in findings)


def _shown(settings: Settings) -> Iterator[Resolved]:
    return (item for item in settings.resolution.items() if not item.option.is_action)


def _source(item: Resolved) -> str:
    if not item.overrides:
        return str(item.source)
    return f"{item.source} (over {', '.join(str(source) for source in item.overrides)})"
