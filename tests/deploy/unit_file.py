"""Unit files and environment files as systemd reads them."""

from __future__ import annotations

import re
from pathlib import Path

from service.options import Settings
from tests.deploy.compose_files import DEPLOY
from tests.deploy.worker_settings import ON_GPU, settings_of

FOLDER = DEPLOY / "systemd"
UNIT = FOLDER / "dynamo-actor-worker@.service"
ENVIRONMENTS = FOLDER / "env"
PROGRAM = "/opt/dynamo-actor-worker/bin/dynamo-actor-worker"

_UNITS_S = {"": 1, "s": 1, "min": 60, "h": 3600}
_TIME = re.compile(r"(\d+)(s|min|h|)")
# A name, and a value without quotes, blanks at its ends, or anything that a shell would take for its own.
_ASSIGNMENT = re.compile(r"([A-Z][A-Z0-9_]*)=([^\s'\"\\$#](?:[^'\"\\$#]*[^\s'\"\\$#])?)")


class Unit:
    """Sections, in each of which a name may come several times; an empty value forgets those before it."""

    def __init__(self, path: Path = UNIT, text: str | None = None) -> None:
        self._found: dict[tuple[str, str], list[str]] = {}
        section = ""
        for line in (path.read_text(encoding="utf-8") if text is None else text).splitlines():
            if line.startswith("["):
                section = line.strip("[]")
            elif line and not line.startswith(("#", ";")):
                name, _, value = line.partition("=")
                values = self._found.setdefault((section, name), [])
                values.clear() if value == "" else values.append(value)

    def all(self, name: str, section: str = "Service") -> list[str]:
        """Every value; empty where there is none."""
        return self._found.get((section, name), [])

    def one(self, name: str, section: str = "Service") -> str:
        """The only value."""
        (value,) = self.all(name, section)
        return value

    def seconds(self, name: str, section: str = "Service") -> float:
        """A span of time."""
        found = _TIME.fullmatch(self.one(name, section))
        assert found is not None
        return int(found[1]) * _UNITS_S[found[2]]

    def names(self, section: str) -> set[str]:
        """What is set there, be it to nothing."""
        return {name for found, name in self._found if found == section}

    @property
    def environment(self) -> dict[str, str]:
        """Of the unit itself; files come after it and win."""
        pairs = (value.partition("=") for value in self.all("Environment"))
        return {name: value for name, _, value in pairs}


def assignments(text: str) -> dict[str, str]:
    """Lines of an environment file. Raises ValueError for what systemd, or a reader, might take for more."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        match = _ASSIGNMENT.fullmatch(line)
        if match is None or match[1] in found:
            raise ValueError(line)
        found[match[1]] = match[2]
    return found


def environment_file(name: str) -> dict[str, str]:
    """One of those that are shipped."""
    return assignments((ENVIRONMENTS / name).read_text(encoding="utf-8"))


def alternatives(name: str) -> dict[str, str]:
    """What stands there behind a # and can be switched on."""
    lines = (ENVIRONMENTS / name).read_text(encoding="utf-8").splitlines()
    return assignments(
        "\n".join(line[1:] for line in lines if _ASSIGNMENT.fullmatch(line[1:]) and line[0] == "#")
    )


def environ_of(instance: str, **more: str) -> dict[str, str]:
    """What systemd gives the worker: the unit's own, then the common file, then the instance's."""
    files = environment_file("worker.env") | environment_file(f"{instance}.env")
    return Unit().environment | files | more


def on_gpu(instance: str = "0", **more: str) -> Settings:
    """What the worker makes of it on a machine with a GPU. Raises ConfigError."""
    return settings_of([], environ_of(instance, **more), ON_GPU)
