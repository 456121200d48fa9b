"""What an option can hold, and where a value came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias


class Secret:
    """A text that never shows itself by accident: repr, str and formatting are masked."""

    __slots__ = ("_text",)

    MASK = "********"

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself. For the one comparison that needs it."""
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return self.MASK

    __str__ = __repr__


Value: TypeAlias = bool | int | float | str | Secret | tuple[str, ...] | Mapping[str, object] | None


@dataclass(frozen=True, slots=True)
class Source:
    """Where a value was given.

    name: the flag as typed, the variable, or FILE:key; empty for a default.
    """

    kind: Literal["flag", "env", "file", "default"]
    name: str = ""

    def __str__(self) -> str:
        return "default" if self.kind == "default" else f"{self.kind} {self.name}"


DEFAULT = Source("default")


@dataclass(frozen=True, slots=True)
class Given:
    """A value as the operator wrote it: text from the command line or the environment, data from a file."""

    source: Source
    raw: object
