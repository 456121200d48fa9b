"""What the framework's filter lets through, by ``DYN_LOG``: read as it reads it (measured: 1.4.2 and 1.6.1).

Directives are separated by commas. ``LEVEL`` is for everybody, ``TARGET=LEVEL`` for the targets that begin
so, ``TARGET`` alone lets everything of them through, ``TARGET=`` errors. The longest beginning that fits
decides, of equal ones the last; a target that none fits writes nothing. A word that is no level is a target:
``DYN_LOG=warning`` silences everybody.
"""

from __future__ import annotations

import logging

# Above every level: nothing is written.
NOTHING = logging.CRITICAL + 1
# The framework's words.
LEVELS = {
    "off": NOTHING,
    "error": logging.ERROR,
    "warn": logging.WARNING,
    "info": logging.INFO,
    "debug": logging.DEBUG,
    "trace": logging.DEBUG,
}
# Its numbers count from "off" up.
_WORDS = {**LEVELS, **dict(zip("012345", LEVELS.values(), strict=True))}


class DynLog:
    """Which level of which target is written. text: ``DYN_LOG``; without a directive it is "info"."""

    def __init__(self, text: str | None) -> None:
        directives = dict(filter(None, map(_directive, (text or "").split(","))))
        self._directives = sorted((directives or {"": logging.INFO}).items(), key=_length, reverse=True)

    def lowest(self, target: str) -> int:
        """The lowest level of `logging` that is written for this target, or `NOTHING`."""
        return next((level for prefix, level in self._directives if target.startswith(prefix)), NOTHING)

    @property
    def lowest_of_all(self) -> int:
        """What any target may write."""
        return min(level for _, level in self._directives)


def level_named(word: str) -> int | None:
    """By its name in any case, or its number; None for what is no level."""
    return _WORDS.get(word.lower())


def _directive(text: str) -> tuple[str, int] | None:
    """None: nothing, or not understood. What is about a span, in brackets, fits no line of ours."""
    if not text or "[" in text:
        return (text, NOTHING) if text else None
    target, equals, word = text.rpartition("=")
    level = level_named(word)
    if not equals:
        return (text, logging.DEBUG) if level is None else ("", level)
    if not word:
        return target, logging.ERROR
    return None if level is None else (target, level)


def _length(directive: tuple[str, int]) -> int:
    return len(directive[0])
