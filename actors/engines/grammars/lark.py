"""Pieces of Lark text: literals, special tokens, free text, and the rules they are used in."""

from __future__ import annotations

import json

from actors.engines.grammars.vocabulary import Vocabulary

_ANY = "ANY"


def literal(text: str) -> str:
    """Exactly this text. ASCII only: the lexer of llguidance stumbles over some characters."""
    return json.dumps(text)


def one_token(number: int) -> str:
    """Exactly this token."""
    return f"<[{number}]>"


def other_tokens(numbers: list[int]) -> str:
    """Any one token but these."""
    return f"<[^{','.join(str(number) for number in sorted(set(numbers)))}]>"


def choice_of(alternatives: list[str]) -> str:
    """One of several expressions."""
    return alternatives[0] if len(alternatives) == 1 else f"({' | '.join(alternatives)})"


def joined(*texts: str) -> str:
    """One expression after the other; some may be empty."""
    return " ".join(text for text in texts if text)


class LarkText:
    """A grammar that is being written: rules, and terminals for free text."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._lines = [f"{_ANY}: /(?s:.*)/"]
        self._texts: dict[tuple[str, ...], str] = {(): _ANY}
        self._names = 0

    def source(self, start: str) -> str:
        """The whole grammar; ``start`` is the expression it begins with."""
        return "\n".join(["%llguidance {}", f"start: {start or literal('')}", *self._lines])

    def rule(self, body: str, *, is_lazy: bool = False) -> str:
        """The name of a new rule. Lazy: a terminal that ends as soon as it can."""
        name = f"r{self._new_name()}"
        self._lines.append(f"{name}{'[lazy]' if is_lazy else ''}: {body}")
        return name

    def terminal(self, body: str) -> str:
        """The name of a new terminal."""
        name = f"T{self._new_name()}"
        self._lines.append(f"{name}: {body}")
        return name

    def free_text(self, excludes: tuple[str, ...] = ()) -> str:
        """The terminal for text without these strings in it."""
        if excludes not in self._texts:
            banned = " | ".join(literal(text) for text in excludes)
            self._texts[excludes] = self.terminal(f"{_ANY} & ~({_ANY} ({banned}) {_ANY})")
        return self._texts[excludes]

    def text_until(self, end: str, excludes: tuple[str, ...]) -> str | None:
        """Free text up to the first ``end``, and ``end``. None where special tokens stand inside of it."""
        parts = self._vocabulary.parts_of(end)
        if all(isinstance(part, str) for part in parts):
            return self.rule(f"{self.free_text(excludes)} {literal(end)}", is_lazy=True)
        if isinstance(parts[0], int):
            return f"{self.free_text(excludes)} {self.fixed(end)}"
        return None

    def fixed(self, text: str) -> str:
        """Text in which special tokens are special; empty for no text."""
        return " ".join(
            literal(part) if isinstance(part, str) else one_token(part)
            for part in self._vocabulary.parts_of(text)
        )

    def _new_name(self) -> int:
        self._names += 1
        return self._names
