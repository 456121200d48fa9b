"""GBNF as xgrammar reads and writes it, cut into pieces: a caller's, or what it made of any constraint."""

from __future__ import annotations

import re
from collections.abc import Iterator

from actors.engines.grammars.rules import Piece, Rules, Sign, Unread

ROOT = "root"

# What each pattern finds; None for what says nothing of what can end. The first that fits counts.
_FORMS: dict[str, tuple[str, Sign | None]] = {
    "blank": (r"\s+|\#[^\n]*", None),
    "rule": (r"[\w.\-]+(?=\s*::=)", Sign.RULE),
    "is": (r"::=", None),
    "literal": (r'"(?:[^"\\]|\\.)*"', Sign.WORD),
    "characters": (r"\[(?:[^\]\\]|\\.)*\]", Sign.WORD),
    # A look ahead; and the library's own forms, which end by themselves: what is named in them may come.
    "aside": (r"\(=|(?:(?:Token)?TagDispatch|(?:Exclude)?Token)\s*\(", Sign.ASIDE),
    "setting": (r"\w+\s*=(?:\s*(?:true|false)\b)?|,", None),
    "name": (r"[\w.\-]+", Sign.NAME),
    "open": (r"\(", Sign.OPEN),
    "close": (r"\)", Sign.CLOSE),
    "or": (r"\|", Sign.OR),
    "optional": (r"[?*]|\{\s*(?:0+\s*)?(?:,[^}]*)?\}", Sign.OPTIONAL),
    "again": (r"\+|\{[^}]*\}", None),
}
_PIECE = re.compile("|".join(f"(?P<{name}>{pattern})" for name, (pattern, _) in _FORMS.items()), re.S)

_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]+)|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.S)
_NAMED = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "b": "\b", "f": "\f", "v": "\v", "a": "\a", "e": "\x1b"}
_LAST = 0x10FFFF
# Of a class: characters, or ranges of them.
_ITEM = re.compile(r"(\\(?:x[0-9a-fA-F]+|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)|[^\\])", re.S)


def rules_of(text: str) -> Rules:
    """The rules of a grammar. Raises Unread."""
    return Rules(_pieces(text))


def characters_of(literal: str) -> str:
    """What a literal says; it comes with its quotes. Raises Unread."""
    return _ESCAPE.sub(lambda found: _character(found[0]), literal[1:-1])


def is_empty_class(word: str) -> bool:
    """Whether it is a class, of which no character is a member. Raises Unread."""
    if not word.startswith("["):
        return False
    is_negated = word.startswith("[^")
    covered = 0
    ranges = sorted(_ranges(word[2 if is_negated else 1 : -1]))
    for first, last in ranges:
        if first > covered:
            break
        covered = max(covered, last + 1)
    return covered > _LAST if is_negated else not ranges


def _pieces(text: str) -> Iterator[Piece]:
    place = 0
    while place < len(text):
        found = _PIECE.match(text, place)
        if found is None or found.lastgroup is None:
            raise Unread("a character with another meaning")
        place = found.end()
        sign = _FORMS[found.lastgroup][1]
        if sign is not None:
            yield Piece(sign, found[0])


def _ranges(members: str) -> Iterator[tuple[int, int]]:
    """First and last, both included."""
    items = _ITEM.findall(members)
    place = 0
    while place < len(items):
        first = last = ord(_character(items[place]))
        if items[place + 1 : place + 2] == ["-"] and place + 2 < len(items):
            last = ord(_character(items[place + 2]))
            place += 2
        place += 1
        yield first, last


def _character(item: str) -> str:
    escape = _ESCAPE.fullmatch(item)
    if escape is None:
        return item
    digits = escape[1] or escape[2] or escape[3]
    if digits is None:
        return _NAMED.get(escape[4], escape[4])
    number = int(digits, 16)
    if number > _LAST:
        raise Unread("a character that is none")
    return chr(number)
