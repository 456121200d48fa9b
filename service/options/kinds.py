"""Kinds of option values: how each is read from text and from files, shown, and described.

``parse`` reads a flag or a variable, ``read`` the data of a YAML or TOML file; both raise ValueError,
whose text (may be empty) says more than ``allowed`` does. ``parse(show(value)) == value`` always holds.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Protocol, cast

from service.options.values import Secret, Value

_TRUE_WORDS = ("true", "1", "yes", "on")
_FALSE_WORDS = ("false", "0", "no", "off")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
# Longest integer that is converted: far above every maximum, far below Python's own limit.
_INTEGER_DIGITS = 40


class Kind(Protocol):
    """One way of writing values."""

    @property
    def allowed(self) -> str:
        """What is accepted, to be read after "allowed:"."""
        ...

    def parse(self, text: str) -> Value:
        """The value of a flag or variable."""
        ...

    def read(self, raw: object) -> Value:
        """The value of a file's key."""
        ...

    def show(self, value: Value) -> str:
        """The value as `parse` would take it."""
        ...


@dataclass(frozen=True, slots=True)
class Boolean:
    """A switch: ``--x`` and ``--no-x`` on the command line, a word elsewhere."""

    @property
    def allowed(self) -> str:
        return f"{'/'.join(_TRUE_WORDS)} or {'/'.join(_FALSE_WORDS)}"

    def parse(self, text: str) -> Value:
        word = text.strip().lower()
        if word not in _TRUE_WORDS + _FALSE_WORDS:
            raise ValueError
        return word in _TRUE_WORDS

    def read(self, raw: object) -> Value:
        return raw if isinstance(raw, bool) else self.parse(_text_of(raw))

    def show(self, value: Value) -> str:
        return "true" if value else "false"


@dataclass(frozen=True, slots=True)
class Integer:
    """A whole number within bounds, both included. ``why`` explains an unusual bound."""

    minimum: int = 1
    maximum: int = 2**31 - 1
    why: str = ""

    @property
    def allowed(self) -> str:
        return f"a whole number from {self.minimum} to {self.maximum}{self.why and f' ({self.why})'}"

    def parse(self, text: str) -> Value:
        if not _INTEGER.fullmatch(text) or len(text) > _INTEGER_DIGITS:
            raise ValueError
        return self._bounded(int(text))

    def read(self, raw: object) -> Value:
        if isinstance(raw, int) and not isinstance(raw, bool):
            return self._bounded(raw)
        return self.parse(_text_of(raw))

    def show(self, value: Value) -> str:
        return str(value)

    def _bounded(self, value: int) -> int:
        if not self.minimum <= value <= self.maximum:
            raise ValueError
        return value


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number within bounds; the minimum itself only when ``with_minimum``."""

    minimum: float = 0.0
    maximum: float = 1e9
    with_minimum: bool = True

    @property
    def allowed(self) -> str:
        start = f"from {self.minimum:g} to" if self.with_minimum else f"above {self.minimum:g} and up to"
        return f"a number {start} {self.maximum:.10g}"

    def parse(self, text: str) -> Value:
        if not _NUMBER.fullmatch(text):
            raise ValueError
        return self._bounded(float(text))

    def read(self, raw: object) -> Value:
        if isinstance(raw, int | float) and not isinstance(raw, bool):
            return self._bounded(raw)
        return self.parse(_text_of(raw))

    def show(self, value: Value) -> str:
        return repr(value).removesuffix(".0")

    def _bounded(self, value: float) -> float:
        # The order matters: nan fails every comparison, and huge integers do not fit a float.
        if not self.minimum <= value <= self.maximum or (value == self.minimum and not self.with_minimum):
            raise ValueError
        number = float(value)
        if not math.isfinite(number):
            raise ValueError
        return number


@dataclass(frozen=True, slots=True)
class Text:
    """One line of text. When ``optional``, the empty text means "not set".

    is_caseless: upper and lower case are the same.
    """

    allowed: str = "a text"
    pattern: str = r".+"
    optional: bool = True
    is_caseless: bool = False

    def parse(self, text: str) -> Value:
        if not text and self.optional:
            return None
        if not re.fullmatch(self.pattern, text):
            raise ValueError
        return text.lower() if self.is_caseless else text

    def read(self, raw: object) -> Value:
        return self.parse(_text_of(raw))

    def show(self, value: Value) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class Choice:
    """One word of a fixed list. ``answered``: words that are read too, only to be refused with a reason."""

    values: tuple[str, ...]
    answered: tuple[str, ...] = ()

    @property
    def allowed(self) -> str:
        return f"one of {', '.join(self.values)}"

    def parse(self, text: str) -> Value:
        if text not in self.values + self.answered:
            raise ValueError
        return text

    def read(self, raw: object) -> Value:
        return self.parse(_text_of(raw))

    def show(self, value: Value) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class Words:
    """Several words, separated by commas or spaces; repetitions fall away. No ``values``: any word."""

    values: tuple[str, ...] = ()
    may_be_empty: bool = False

    @property
    def allowed(self) -> str:
        return f"words out of {', '.join(self.values)}" if self.values else "words, separated by commas"

    def parse(self, text: str) -> Value:
        words = tuple(dict.fromkeys(text.lower().replace(",", " ").split()))
        if not words and not self.may_be_empty:
            raise ValueError
        if self.values and not set(words) <= set(self.values):
            raise ValueError
        return words

    def read(self, raw: object) -> Value:
        if not isinstance(raw, list):
            return self.parse(_text_of(raw))
        return self.parse(" ".join(_text_of(item) for item in cast("list[object]", raw)))

    def show(self, value: Value) -> str:
        return ",".join(cast("tuple[str, ...]", value))


@dataclass(frozen=True, slots=True)
class SecretText:
    """A secret: printable ASCII without blanks. The one kind whose ``show`` does not lead back."""

    minimum: int = 8

    @property
    def allowed(self) -> str:
        return f"at least {self.minimum} printable ASCII characters without blanks"

    def parse(self, text: str) -> Value:
        if len(text) < self.minimum or not re.fullmatch(r"[!-~]+", text):
            raise ValueError
        return Secret(text)

    def read(self, raw: object) -> Value:
        return self.parse(_text_of(raw))

    def show(self, value: Value) -> str:
        return Secret.MASK


def _text_of(raw: object) -> str:
    if isinstance(raw, str):
        return raw
    raise ValueError(f"found {type(raw).__name__}")
