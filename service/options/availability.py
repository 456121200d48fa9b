"""Options that are known by name but cannot be honoured: refused with the reason, never ignored."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from service.options.config_file import about_engine_argument, load_mapping, refuse_engine_arguments

if TYPE_CHECKING:
    from service.options.command_line import CommandLine
    from service.options.errors import Complaints
    from service.options.framework import FrameworkFacts
    from service.options.option import Refusal
    from service.options.resolve import Resolution, Resolved


def check_availability(
    resolution: Resolution, typed: CommandLine, framework: FrameworkFacts, complaints: Complaints
) -> None:
    """Refuse what this release, its engines or the installed framework cannot do."""
    for resolved in resolution.items():
        if resolved.is_given and resolved.value != resolved.option.default:
            _check_release(resolved, complaints)
            _check_framework(resolved, framework, complaints)
    for path, given in typed.engine_arguments.items():
        complaints.refuse(given.source.name, given.raw, about_engine_argument(path))
    _check_engine_documents(resolution, complaints)


def _check_release(resolved: Resolved, complaints: Complaints) -> None:
    refusal = resolved.option.refusal
    if refusal is None or resolved.value in refusal.accepts:
        return
    if _is_harmless_connector(resolved, complaints):
        return
    if resolved.source.kind == "env" and refusal.from_environment == "warn":
        complaints.warn(f"{resolved.where} has no effect on this worker; {refusal.instead}")
    else:
        _refuse(resolved, refusal, complaints)


def _refuse(resolved: Resolved, refusal: Refusal, complaints: Complaints) -> None:
    complaints.refuse(resolved.where, resolved.option.show(resolved.value), refusal.reason)


def _is_harmless_connector(resolved: Resolved, complaints: Complaints) -> bool:
    """Upstream's rule: one connector at most, and unknown ones count as none, with a warning."""
    if resolved.option.name != "connector":
        return False
    text = resolved.option.show(resolved.value)
    if "," in text or text == "kvbm":
        return False
    if text not in {"none", "null"}:
        complaints.warn(f"{resolved.where}: {text!r} is no connector of this worker; none is used")
    return True


def _check_framework(resolved: Resolved, framework: FrameworkFacts, complaints: Complaints) -> None:
    field = resolved.option.framework_field
    if field is not None and field not in framework.worker_config_fields:
        complaints.refuse(
            resolved.where,
            resolved.option.show(resolved.value),
            f"needs a framework whose WorkerConfig has {field!r}; ai-dynamo {framework.version} has not: "
            "leave it out or install a newer one (1.6 has it)",
        )


def _check_engine_documents(resolution: Resolution, complaints: Complaints) -> None:
    """Engine arguments given as JSON or YAML: every key is refused, a wrong one with the right name."""
    override = resolution["override_engine_args"]
    if isinstance(override.value, Mapping):
        refuse_engine_arguments(override.where, override.value, complaints)
    extra = resolution["extra_engine_args"]
    if isinstance(extra.value, str):
        try:
            refuse_engine_arguments(extra.value, load_mapping(Path(extra.value).expanduser()), complaints)
        except ValueError as error:
            complaints.refuse(extra.where, extra.value, str(error))
