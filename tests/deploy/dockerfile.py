"""The Dockerfile taken apart: its stages, and the instructions of each with their variables filled in."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.deploy.compose_files import DEPLOY

DOCKERFILE = DEPLOY / "container" / "Dockerfile"
_VARIABLE = re.compile(r"\$\{(\w+)(?::\+([^{}]*(?:\{\w+\})?[^{}]*))?\}|\$(\w+)")


@dataclass(slots=True)
class Stage:
    """What stands between two FROM: (instruction, its text), in order."""

    name: str
    base: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def all(self, instruction: str) -> list[str]:
        """The texts of all of that kind."""
        return [text for kind, text in self.instructions if kind == instruction]

    def one(self, instruction: str) -> str:
        """The text of the only one of that kind."""
        (text,) = self.all(instruction)
        return text

    @property
    def environ(self) -> dict[str, str]:
        """All ENV; what refers to a variable of the base is left as it is written."""
        words = [word for text in self.all("ENV") for word in shlex.split(text)]
        return dict(word.split("=", 1) for word in words)

    @property
    def labels(self) -> dict[str, str]:
        """All LABEL."""
        words = [word for text in self.all("LABEL") for word in shlex.split(text)]
        return dict(word.split("=", 1) for word in words)

    @property
    def entrypoint(self) -> list[str]:
        """In its exec form. Raises ValueError for a shell's."""
        words: list[str] = json.loads(self.one("ENTRYPOINT"))
        return words


def read(path: Path = DOCKERFILE) -> tuple[dict[str, str], dict[str, Stage]]:
    """The ARG before the first FROM with their defaults, and the stages by name."""
    arguments: dict[str, str] = {}
    stages: dict[str, Stage] = {}
    stage: Stage | None = None
    for kind, text in _instructions(path):
        if kind == "FROM":
            base, _, name = text.split()
            stage = stages[name] = Stage(name, filled(base, arguments))
        elif stage is None:
            name, _, default = text.partition("=")
            arguments[name] = default
        else:
            stage.instructions.append((kind, text))
    return arguments, stages


def filled(text: str, values: Mapping[str, str]) -> str:
    """``${NAME}``, ``$NAME`` and ``${NAME:+word}`` as the builder fills them."""

    def fill(found: re.Match[str]) -> str:
        value = values[found[1] or found[3]]
        if found[2] is None:
            return value
        return filled(found[2], values) if value else ""

    return _VARIABLE.sub(fill, text)


def _instructions(path: Path) -> list[tuple[str, str]]:
    lines = [
        line for line in path.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")
    ]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    found = [line.split(None, 1) for line in joined.splitlines() if line.strip()]
    return [(kind, text) for kind, text in found]
