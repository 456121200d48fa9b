"""The compose files as compose reads them: several merged into one, variables filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
DEPLOY = REPOSITORY / "deploy"
FOLDER = DEPLOY / "compose"
BASE = FOLDER / "compose.yaml"
OBSERVABILITY = FOLDER / "compose.observability.yaml"

_VARIABLE = re.compile(r"\$\{(\w+):-([^}]*)\}")
_DURATION = re.compile(r"(\d+)(s|m|h)")
_SECONDS = {"s": 1, "m": 60, "h": 3600}


@dataclass(frozen=True, slots=True)
class Health:
    """A health check: the words after CMD, and its times in seconds."""

    words: tuple[str, ...]
    interval_s: int
    timeout_s: int
    start_period_s: int
    retries: int

    @property
    def patience_s(self) -> int:
        """How long after its start a service may stay away before it is called unhealthy."""
        return self.start_period_s + self.retries * self.interval_s


@dataclass(frozen=True, slots=True)
class Port:
    """What is published: at which address and port of the machine, of which port in the container."""

    address: str
    outside: int
    inside: int


@dataclass(frozen=True, slots=True)
class Mount:
    """A file, folder or named volume of the machine, and where it is in the container."""

    source: str
    target: str
    is_read_only: bool

    @property
    def path(self) -> Path | None:
        """Where it lies in the repository; None for a named volume."""
        return (FOLDER / self.source).resolve() if self.source.startswith(".") else None


@dataclass(frozen=True, slots=True)
class Service:
    """One service. environment: None is what compose takes from the shell, where it is set there."""

    name: str
    image: str
    argv: tuple[str, ...]
    environment: Mapping[str, str | None]
    mounts: tuple[Mount, ...]
    ports: tuple[Port, ...]
    health: Health | None
    waits_for: Mapping[str, str]
    stop_grace_s: int
    raw: Mapping[str, Any]

    @property
    def writable(self) -> tuple[str, ...]:
        """Where it may write although its root is read-only: in memory, and in volumes."""
        in_memory = [entry.partition(":")[0] for entry in self.raw.get("tmpfs", ())]
        return (*in_memory, *(mount.target for mount in self.mounts if not mount.is_read_only))

    def environ(self, shell: Mapping[str, str]) -> dict[str, str]:
        """The variables that the container gets from compose."""
        taken = {name: shell.get(name) if text is None else text for name, text in self.environment.items()}
        return {name: text for name, text in taken.items() if text is not None}


def read(path: Path, shell: Mapping[str, str] | None = None) -> dict[str, Any]:
    """One file, its ``${NAME:-default}`` filled from these variables."""

    def fill(found: re.Match[str]) -> str:
        return (shell or {}).get(found[1]) or found[2]

    document: dict[str, Any] = yaml.safe_load(_VARIABLE.sub(fill, path.read_text(encoding="utf-8")))
    return document


def merged(paths: Sequence[Path], shell: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Mappings are merged, later files win. A list in two files is refused: compose has rules of its own."""
    whole: dict[str, Any] = {}
    for path in paths:
        _lay_over(
            whole, {name: part for name, part in read(path, shell).items() if not name.startswith("x-")}
        )
    return whole


def services(paths: Sequence[Path], shell: Mapping[str, str] | None = None) -> dict[str, Service]:
    """All of them by name, those of profiles included."""
    return {name: _service(name, raw) for name, raw in merged(paths, shell)["services"].items()}


def seconds(text: str) -> int:
    """A duration as compose writes it."""
    found = _DURATION.fullmatch(text)
    assert found is not None, f"{text} is no duration that is understood here"
    return int(found[1]) * _SECONDS[found[2]]


def _lay_over(below: dict[str, Any], above: Mapping[str, Any]) -> None:
    for name, value in above.items():
        if isinstance(value, dict) and isinstance(below.get(name), dict):
            _lay_over(below[name], value)
        else:
            assert not isinstance(below.get(name), list), f"two files have a list at {name}"
            below[name] = value


def _service(name: str, raw: Mapping[str, Any]) -> Service:
    return Service(
        name=name,
        image=raw["image"],
        argv=(*raw.get("entrypoint", ()), *raw.get("command", ())),
        environment=raw.get("environment", {}),
        mounts=tuple(_mount(text) for text in raw.get("volumes", ())),
        ports=tuple(_port(text) for text in raw.get("ports", ())),
        health=_health(raw["healthcheck"]) if "healthcheck" in raw else None,
        waits_for={other: how["condition"] for other, how in raw.get("depends_on", {}).items()},
        stop_grace_s=seconds(raw.get("stop_grace_period", "10s")),
        raw=raw,
    )


def _health(raw: Mapping[str, Any]) -> Health:
    kind, *words = raw["test"]
    assert kind == "CMD", "a shell is not in every image"
    return Health(
        tuple(words),
        seconds(raw["interval"]),
        seconds(raw["timeout"]),
        seconds(raw.get("start_period", "0s")),
        raw["retries"],
    )


def _port(text: str) -> Port:
    address, outside, inside = text.split(":")
    return Port(address, int(outside), int(inside))


def _mount(text: str) -> Mount:
    source, target, *mode = text.split(":")
    return Mount(source, target, mode == ["ro"])
