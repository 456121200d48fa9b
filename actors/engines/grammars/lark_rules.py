"""Lark text as llguidance reads it, cut into pieces; and its terminals, to try each alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from actors.engines.grammars.rules import Piece, Rules, Sign, Unread

ROOT = "start"

# What each pattern finds; None for what says nothing of what can end. The first that fits counts.
_FORMS: dict[str, tuple[str, Sign | None]] = {
    "blank": (r"\s+|(?://|\#)[^\n]*", None),
    "inline": (r"%(?:json|regex|llguidance)\b\s*", None),
    "statement": (r"%(?:ignore|import|declare)\b[^\n]*", None),
    "rule": (r"[!?]*(?P<defined>\w+)(?:\.-?\d+)?\s*(?:\[[^\]\n]*\]\s*)?:(?!:)", Sign.RULE),
    "literal": (r'"(?:[^"\\\n]|\\.)*"i?', Sign.WORD),
    "pattern": (r"/(?:[^/\\\n]|\\.)+/[a-z]*", Sign.WORD),
    "token": (r"<\[[^\]>\n]*\]>|<[^<>\s]+>", Sign.WORD),
    "alias": (r"->\s*\w+|\.\.", None),
    "name": (r"\w+", Sign.NAME),
    "open": (r"\(", Sign.OPEN),
    "aside": (r"\[", Sign.ASIDE),
    "close": (r"[)\]]", Sign.CLOSE),
    "or": (r"\|", Sign.OR),
    "optional": (r"[?*]|[{~]\s*(?:0+\b\s*(?:(?:,|\.\.)\s*\d*\s*)?|,\s*\d+\s*)\}?", Sign.OPTIONAL),
    "again": (r"\+|[{~]\s*\d+\s*(?:(?:,|\.\.)\s*\d*\s*)?\}?", None),
    # In terminals only, which are words here.
    "combined": (r"[&~]", None),
}
_PIECE = re.compile("|".join(f"(?P<{name}>{pattern})" for name, (pattern, _) in _FORMS.items()))
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class LarkRules:
    """rules: of the grammar, in which terminals are words. terminals: the text that defines them."""

    rules: Rules
    terminals: str

    def alone(self, word: str) -> str:
        """A grammar whose answers are those to this word."""
        return f"{ROOT}: {word}\n{self.terminals}"


def read_lark(text: str) -> LarkRules:
    """Raises Unread, also for grammars in the grammar, and for rules with parameters."""
    terminals: list[str] = []
    return LarkRules(Rules(_pieces(text, terminals)), "".join(terminals))


def _pieces(text: str, terminals: list[str]) -> Iterator[Piece]:
    """Without the definitions of terminals, which are noted, as what they need is."""
    terminal = False
    for form, start, end, name in _cut(text):
        if form in ("rule", "statement"):
            terminal = form == "rule" and _is_terminal(name)
            if form == "statement" and not text.startswith("%ignore", start):
                terminals.append(f"\n{text[start:end]}\n")
        sign = _FORMS[form][1]
        if terminal:
            terminals.append(text[start:end] if form != "rule" else f"\n{text[start:end]}")
        elif sign is Sign.NAME and _is_terminal(name):
            yield Piece(Sign.WORD, name)
        elif sign is not None:
            yield Piece(sign, name)
        elif form == "inline" and not text.startswith("%llguidance", start):
            yield Piece(Sign.WORD, name)


def _cut(text: str) -> Iterator[tuple[str, int, int, str]]:
    """Form, beginning and end of each piece, and its name or the whole of it."""
    place = 0
    while place < len(text):
        found = _PIECE.match(text, place)
        if found is None or found.lastgroup is None:
            raise Unread("a character with another meaning")
        end = found.end()
        if found["inline"]:
            end = _end_of_json(text, end)
        yield found.lastgroup, place, end, found["defined"] or text[place:end]
        place = end


def _end_of_json(text: str, start: int) -> int:
    try:
        _, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError) as exc:
        raise Unread("no JSON behind the word for it") from exc
    return end


def _is_terminal(name: str) -> bool:
    letters = (letter for letter in name if letter.isalpha())
    return next(letters, "a").isupper()
