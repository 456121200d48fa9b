"""How a wrong configuration is reported: every problem at once, one line each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from protocols.errors import ServiceError, shorten

if TYPE_CHECKING:
    from collections.abc import Iterable

# Of a value; paths of files are to be read whole.
_SHOWN_CHARACTERS = 300


class _Null:
    """What files write as null."""

    def __repr__(self) -> str:
        return "null"


NULL = _Null()


@dataclass(frozen=True, slots=True)
class Problem:
    """One wrong setting. ``where`` is a flag, a variable or FILE:key; ``value`` None: none is shown."""

    where: str
    value: object
    allowed: str

    def __str__(self) -> str:
        shown = "" if self.value is None else f" value {self._written()}:"
        return f"{self.where}:{shown} {self.allowed}"

    def _written(self) -> str:
        """As files and flags have it: true and not True."""
        if isinstance(self.value, bool):
            return str(self.value).lower()
        return shorten(self.value, _SHOWN_CHARACTERS)


class ConfigError(ServiceError):
    """The configuration is wrong. Nothing was started; the process ends with ``exit_code``."""

    exit_code: ClassVar[int] = 2

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class Complaints:
    """Collects what is wrong (stops the start) and what is odd (is only said) on the way."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.warnings: list[str] = []

    def refuse(self, where: str, value: object, allowed: str) -> None:
        """Note one problem; go on looking for others."""
        self.problems.append(Problem(where, value, allowed))

    def warn(self, text: str) -> None:
        """Note something the operator should know, once."""
        if text not in self.warnings:
            self.warnings.append(text)

    def raise_if_any(self) -> None:
        """Raise ConfigError with everything that was refused."""
        if self.problems:
            raise ConfigError(self.problems)
