"""What an argument may hold, type by type, and how TensorRT-LLM's pydantic reads it.

It takes "5" for a whole number and 1 for true, and what it takes is not refused here; a number is no text to
it. Where this worker reads the same value, it reads what `typed` makes of it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol, TypeGuard, cast

if TYPE_CHECKING:
    from collections.abc import Iterable

_WHOLE_TEXT = re.compile(r"\s*([+-]?\d+(?:_\d+)*)(?:\.0+)?\s*", re.ASCII)
# Beyond them it takes no float for a whole number.
_LARGEST_FLOAT = 2.0**63
_ON, _OFF = ("1", "on", "t", "true", "y", "yes"), ("0", "off", "f", "false", "n", "no")


class Kind(Protocol):
    """One type with its bounds. Null is no matter of a kind."""

    @property
    def allowed(self) -> str:
        """For people, after "allowed:"."""
        ...

    def takes(self, value: object) -> bool:
        """Whether pydantic reads the value as this type."""
        ...

    def holds(self, value: object) -> bool:
        """Whether the value is of this type as it stands."""
        ...

    def typed(self, value: object) -> object:
        """What pydantic makes of a value that it takes; any other one comes back as it is."""
        ...


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number, from ``minimum`` up where there is one."""

    minimum: int | None = None

    @property
    def allowed(self) -> str:
        return "a whole number" if self.minimum is None else f"a whole number from {self.minimum} up"

    def takes(self, value: object) -> bool:
        number = as_whole(value)
        return number is not None and (self.minimum is None or number >= self.minimum)

    def holds(self, value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and self.takes(value)

    def typed(self, value: object) -> object:
        return as_whole(value) if self.takes(value) else value


@dataclass(frozen=True, slots=True)
class Number:
    """A number, from ``low`` to ``high`` where there are bounds."""

    low: float | None = None
    high: float | None = None

    @property
    def allowed(self) -> str:
        if self.high is not None:
            return f"a number from {self.low:g} to {self.high:g}"
        return "a number" if self.low is None else f"a number from {self.low:g} up"

    def takes(self, value: object) -> bool:
        number = _number(value)
        if number is None:
            return False
        return (self.low is None or number >= self.low) and (self.high is None or number <= self.high)

    def holds(self, value: object) -> bool:
        return is_number(value) and self.takes(value)

    def typed(self, value: object) -> object:
        return _number(value) if self.takes(value) and not is_number(value) else value


@dataclass(frozen=True, slots=True)
class Switch:
    """Yes or no."""

    allowed: str = "true or false"

    def takes(self, value: object) -> bool:
        return as_switch(value) is not None

    def holds(self, value: object) -> bool:
        return isinstance(value, bool)

    def typed(self, value: object) -> object:
        found = as_switch(value)
        return value if found is None else found


@dataclass(frozen=True, slots=True)
class SwitchOr:
    """Yes or no, or one word, which leaves it to TensorRT-LLM."""

    word: str

    @property
    def allowed(self) -> str:
        return f"true, false or {self.word}"

    def takes(self, value: object) -> bool:
        return value == self.word or as_switch(value) is not None

    def holds(self, value: object) -> bool:
        return value == self.word or isinstance(value, bool)

    def typed(self, value: object) -> object:
        return Switch().typed(value)


@dataclass(frozen=True, slots=True)
class Text:
    """Any text; nothing else is read as one."""

    allowed: str = "a text"

    def takes(self, value: object) -> bool:
        return isinstance(value, str)

    def holds(self, value: object) -> bool:
        return isinstance(value, str)

    def typed(self, value: object) -> object:
        return value


@dataclass(frozen=True, slots=True)
class Words:
    """One of some texts, in the spelling TensorRT-LLM compares with."""

    words: tuple[str, ...]

    @property
    def allowed(self) -> str:
        return f"one of {', '.join(self.words)}"

    def takes(self, value: object) -> bool:
        return value in self.words

    def holds(self, value: object) -> bool:
        return value in self.words

    def typed(self, value: object) -> object:
        return value


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list, each of whose values is of one kind. ``values``: what they are called together."""

    kind: Kind
    values: str
    may_be_empty: bool = True

    @property
    def allowed(self) -> str:
        return f"a list of {self.values}{'' if self.may_be_empty else ', at least one'}"

    def takes(self, value: object) -> bool:
        return _is_list(value) and (self.may_be_empty or bool(value)) and all(map(self.kind.takes, value))

    def holds(self, value: object) -> bool:
        return self.takes(value) and _is_list(value) and all(map(self.kind.holds, value))

    def typed(self, value: object) -> object:
        return list(map(self.kind.typed, value)) if _is_list(value) and self.takes(value) else value


@dataclass(frozen=True, slots=True)
class Rising:
    """A list of numbers without equals, the smallest first, and at least one."""

    allowed: str = "a list of numbers, each above the one before it"

    def takes(self, value: object) -> bool:
        if not _is_list(value) or not value:
            return False
        numbers = [number for number in map(_number, value) if number is not None]
        is_whole = len(numbers) == len(value) and not any(map(math.isnan, numbers))
        return is_whole and all(low < high for low, high in pairwise(numbers))

    def holds(self, value: object) -> bool:
        return self.takes(value) and _is_list(value) and all(map(is_number, value))

    def typed(self, value: object) -> object:
        return list(map(Number().typed, value)) if _is_list(value) and self.takes(value) else value


@dataclass(frozen=True, slots=True)
class Object:
    """Names with values; of texts only where ``of_texts``."""

    of_texts: bool = False

    @property
    def allowed(self) -> str:
        return (
            "an object of names, with a text for each" if self.of_texts else "an object of names and values"
        )

    def takes(self, value: object) -> bool:
        return self.holds(value)

    def holds(self, value: object) -> bool:
        if not isinstance(value, dict):
            return False
        values: Iterable[object] = cast("dict[object, object]", value).values()
        return not self.of_texts or all(isinstance(each, str) for each in values)

    def typed(self, value: object) -> object:
        return value


def as_switch(value: object) -> bool | None:
    """What pydantic reads as yes or no; None for anything else."""
    if isinstance(value, str):
        word = value.lower()
        return word in _ON if word in (*_ON, *_OFF) else None
    return bool(value) if isinstance(value, int | float) and value in (0, 1) else None


def as_whole(value: object) -> int | None:
    """What pydantic reads as a whole number; None for anything else."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < _LARGEST_FLOAT else None
    if isinstance(value, int):
        return int(value)
    match = _WHOLE_TEXT.fullmatch(value) if isinstance(value, str) else None
    try:
        return None if match is None else int(match[1])
    except ValueError:
        # Thousands of digits.
        return None


def is_number(value: object) -> TypeGuard[float]:
    """Whether it is one as it stands; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: object) -> float | None:
    if not isinstance(value, int | float | str) or (isinstance(value, str) and not value.isascii()):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _is_list(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)
