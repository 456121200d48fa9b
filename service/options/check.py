"""``--check-config``: everything that can be checked without loading the model or touching the network."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from service.options.engine_arguments.surroundings import missing_connector
from service.options.engine_choice import EngineChoiceError, EngineFacts, choose_engine
from service.options.errors import ConfigError
from service.options.machine import cores, memory_bytes, read_engine_facts
from service.options.tables import BY_NAME
from service.system_server import SystemServer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from service.options.settings import Settings

Level = Literal["ok", "warning", "error"]

_DEFAULT_MODEL = str(BY_NAME["model"].default)


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the check's report."""

    level: Level
    subject: str
    text: str

    def __str__(self) -> str:
        return f"{self.level:<8}{self.subject}: {self.text}"


def check_settings(
    settings: Settings, facts: EngineFacts | None = None, model_names: Iterable[str] = ()
) -> list[Finding]:
    """Check accepted settings against this machine.

    facts: what is installed; read from the machine when None.
    model_names: built-in names of models besides the default of ``--model``.
    """
    findings = [Finding("warning", "configuration", text) for text in settings.warnings]
    findings.append(_check_engine(settings, facts or read_engine_facts(os.environ)))
    findings.extend(_check_tensorrt(settings))
    findings.append(_check_model(settings.model.model, frozenset([*model_names, _DEFAULT_MODEL])))
    findings.append(_check_port(settings))
    findings.append(_describe_budgets(settings))
    findings.extend(_check_machine(settings))
    if settings.dump_config_to is not None:
        findings.append(_check_writable(settings.dump_config_to))
    return findings


def refuse_missing_packages(settings: Settings) -> None:
    """What the check says of a connector's package, for a start. Raises ConfigError before anything loads."""
    arguments = settings.engine_arguments
    problem = None if arguments is None else missing_connector(arguments)
    if problem is not None:
        raise ConfigError([problem])


def exit_code_of(findings: Sequence[Finding]) -> int:
    """0 when nothing is wrong, 2 otherwise; warnings do not count."""
    return 2 if any(finding.level == "error" for finding in findings) else 0


def _check_engine(settings: Settings, facts: EngineFacts) -> Finding:
    try:
        choice = choose_engine(settings.engine.requested, facts, settings.engine.tensorrt_options)
    except EngineChoiceError as error:
        return Finding("error", "engine", str(error))
    return Finding("ok", "engine", f"{choice.engine} ({choice.reason})")


def _check_tensorrt(settings: Settings) -> Iterator[Finding]:
    """What TensorRT-LLM would be built with, and the package of its connector."""
    if settings.engine_arguments is None:
        return
    yield Finding("ok", "engine arguments", settings.engine_arguments.shown())
    problem = missing_connector(settings.engine_arguments)
    if problem is not None:
        yield Finding("error", "connector", str(problem))


def _check_model(model: str, names: frozenset[str]) -> Finding:
    folder = Path(model).expanduser()
    if model in names:
        return Finding("ok", "model", f"{model}, a built-in model")
    if folder.is_dir():
        return _check_model_folder(model, folder)
    if model.startswith((".", "/", "~")) or model.count("/") > 1:
        return Finding("error", "model", f"there is no folder {model}")
    known = ", ".join(sorted(names))
    return Finding(
        "warning",
        "model",
        f"{model} is no folder and none of {known}: taken for a hub id, which needs the hub",
    )


def _check_model_folder(model: str, folder: Path) -> Finding:
    if not (folder / "config.json").is_file():
        return Finding("error", "model", f"the folder {model} has no config.json")
    if not (folder / "tokenizer.json").is_file():
        return Finding(
            "warning", "model", f"the folder {model} has no tokenizer.json, which frontends look for"
        )
    return Finding("ok", "model", f"folder {model}")


def _check_port(settings: Settings) -> Finding:
    host, port = settings.runtime.system_host, settings.runtime.system_port
    if port < 0:
        return Finding(
            "warning", "system port", "DYN_SYSTEM_PORT is not set: no health, metrics and control routes"
        )
    if port == 0:
        return Finding("ok", "system port", f"any free port on {host}")
    refused = SystemServer(host, port).refused()
    if refused is not None:
        return Finding("error", "system port", f"{host}:{port} cannot be bound: {refused.strerror}")
    return Finding("ok", "system port", f"{host}:{port} is free")


def _describe_budgets(settings: Settings) -> Finding:
    drain = settings.drain
    return Finding(
        "ok",
        "shutdown",
        f"after the signal: grace until {drain.grace_s:g} s, requests are moved at {drain.move_at_s:g} s, "
        f"drain until {drain.drain_until_s:g} s, return by {drain.return_by_s:g} s, hard exit at "
        f"{drain.hard_exit_s:g} s",
    )


def _check_machine(settings: Settings) -> Iterator[Finding]:
    threads, gigabytes = settings.torch.threads, settings.torch.memory_gb
    if threads > cores():
        yield Finding("warning", "threads", f"{threads} threads on {cores()} cores slow each other down")
    if gigabytes is not None and gigabytes * 1e9 > memory_bytes() and settings.torch.device != "cuda":
        yield Finding(
            "error", "memory", f"--memory-gb {gigabytes:g} of {memory_bytes() / 1e9:.1f} GB in this machine"
        )


def _check_writable(path: Path) -> Finding:
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        return Finding("error", "dump-config-to", f"{path} cannot be written")
    return Finding("ok", "dump-config-to", str(path))
