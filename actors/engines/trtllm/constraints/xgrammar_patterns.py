"""Regular expressions for xgrammar: what it would pass over, with a warning in its log, is refused."""

from __future__ import annotations

import re

from protocols.errors import InvalidRequest

# The letters that mean something behind a backslash, or are refused there by xgrammar itself. It takes any
# other letter for itself, also \A and \Z.
_KNOWN_LETTERS = frozenset("dDwWsSnrtvfxucbBpPk")

# Two digits and what looks like another one: it reads on.
_LONG_NUMBER = re.compile(r"\\x[0-9A-Fa-f]{3}")


def check_pattern(pattern: str, field: str) -> None:
    """Raises InvalidRequest. All else that xgrammar does not know it refuses itself."""
    if "\0" in pattern:
        raise InvalidRequest(field, pattern, r"a pattern without a zero character; write it as \u0000")
    at, end, is_in_class = 0, len(pattern), False
    while at < end:
        character = pattern[at]
        if character == "\\":
            _check_escape(pattern[at : at + 5], field)
            at += 1
        elif is_in_class:
            is_in_class = character != "]"
        elif character == "[":
            _check_class(pattern[at : at + 3], field)
            is_in_class = True
        elif (character == "^" and at > 0) or (character == "$" and at < end - 1):
            allowed = "'^' at the beginning and '$' at the end only: xgrammar obeys none elsewhere"
            raise InvalidRequest(field, pattern, allowed)
        at += 1


def _check_class(beginning: str, field: str) -> None:
    if beginning == r"[\^":
        raise InvalidRequest(field, beginning, "'^' later in a class: here xgrammar takes it for 'none of'")


def _check_escape(escape: str, field: str) -> None:
    if _LONG_NUMBER.match(escape):
        allowed = r"no digit right behind \x41, which xgrammar takes for a part of it; write \u0041"
        raise InvalidRequest(field, escape, allowed)
    letter = escape[1:2]
    if letter.isascii() and letter.isalpha() and letter not in _KNOWN_LETTERS:
        raise InvalidRequest(field, escape[:2], "an escape that xgrammar knows; a letter stands for itself")
