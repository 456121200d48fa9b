"""Which rules of a grammar can never end: no answer, however long, gets through them.

An engine that has been led into such a rule has no token left to choose, or writes on for ever. A grammar all
of whose rules can end does neither, as long as the vocabulary can say what is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple


class Sign(Enum):
    """What a piece of a grammar's text is."""

    RULE = auto()
    """The name of a rule; its definition follows."""
    NAME = auto()
    """A rule is used."""
    WORD = auto()
    """What is answered: a literal, a class of characters, a pattern, a token."""
    OPEN = auto()
    ASIDE = auto()
    """Opens a group that may come and need not; `CLOSE` closes it."""
    CLOSE = auto()
    OR = auto()
    OPTIONAL = auto()
    """What stands in front may come and need not."""


class Piece(NamedTuple):
    """Of a grammar's text. text: the name of a rule, or a word as it is written there."""

    sign: Sign
    text: str = ""


class Unread(Exception):
    """The text is of no form that is known here. That says nothing of whether it is right."""


@dataclass(slots=True)
class _Use:
    """Of a rule, a group or a word, somewhere in another rule."""

    name: str
    is_needed: bool = True


@dataclass(slots=True)
class _Open:
    """A rule, or a group in it, that is being read."""

    is_aside: bool = False
    alternatives: list[list[_Use]] = field(default_factory=lambda: [[]])


class _Reading:
    """Takes pieces one after the other. Raises Unread."""

    def __init__(self) -> None:
        self.rules: dict[str, list[list[_Use]]] = {}
        self.words: set[str] = set()
        self._open: list[_Open] = []

    def begin(self, name: str) -> None:
        if len(self._open) > 1 or name in self.rules:
            raise Unread("a rule inside of a group, or a second one of this name")
        self._open = [_Open()]
        self.rules[name] = self._open[0].alternatives

    def use(self, name: str) -> None:
        self.last()[-1].append(_Use(name))

    def word(self, text: str) -> None:
        self.words.add(text)
        self.use(text)

    def open(self, *, is_aside: bool) -> None:
        name = f"({len(self.rules)}"
        self.use(name)
        self._open.append(_Open(is_aside))
        self.rules[name] = self._open[-1].alternatives

    def close(self) -> None:
        if len(self._open) < 2:
            raise Unread("a group that was not opened")
        if self._open.pop().is_aside:
            self.leave_out()

    def leave_out(self) -> None:
        uses = self.last()[-1]
        if not uses:
            raise Unread("nothing in front of what makes it optional")
        uses[-1].is_needed = False

    def last(self) -> list[list[_Use]]:
        if not self._open:
            raise Unread("something in front of the first rule")
        return self._open[-1].alternatives

    def end(self) -> None:
        """There are no more."""
        if len(self._open) > 1:
            raise Unread("a group that is not closed")


_TAKE: dict[Sign, Callable[[_Reading, str], None]] = {
    Sign.RULE: _Reading.begin,
    Sign.NAME: _Reading.use,
    Sign.WORD: _Reading.word,
    Sign.OPEN: lambda reading, _: reading.open(is_aside=False),
    Sign.ASIDE: lambda reading, _: reading.open(is_aside=True),
    Sign.CLOSE: lambda reading, _: reading.close(),
    Sign.OR: lambda reading, _: reading.last().append([]),
    Sign.OPTIONAL: lambda reading, _: reading.leave_out(),
}


class Rules:
    """The rules of one grammar; a group is one without a name. Raises Unread."""

    def __init__(self, pieces: Iterable[Piece]) -> None:
        reading = _Reading()
        for piece in pieces:
            _TAKE[piece.sign](reading, piece.text)
        reading.end()
        self._rules, self._words = reading.rules, reading.words

    def endless(self, root: str, is_dead: Callable[[str], bool]) -> str | None:
        """A rule that can be reached from this one and can never end, or a dead word; None where all can end.

        The last on the way: what leads to it cannot end, either.

        is_dead: whether nothing can be answered to a word; asked of those that can be reached. A name without
        a definition is the library's own, or an error of which it tells.
        """
        reached = self._reached(root)
        dead = {name for name in reached if name in self._words and is_dead(name)}
        ending = self._ending(dead)
        # Whatever makes a group endless is reached, too, and has a name.
        endless = [name for name in reached if name not in ending and not name.startswith("(")]
        return endless[-1] if endless else None

    def _reached(self, root: str) -> list[str]:
        """The nearest first."""
        found = {root: None}
        queue = [root]
        for name in queue:
            uses = (use.name for alternative in self._rules.get(name, []) for use in alternative)
            fresh = [use for use in dict.fromkeys(uses) if use not in found]
            found.update(dict.fromkeys(fresh))
            queue += fresh
        return queue

    def _ending(self, dead: set[str]) -> set[str]:
        """All that can end, as a fixed point: it has an alternative in which all that is needed can."""
        # How many each alternative still waits for, and who waits for a name.
        missing: list[int] = []
        waiting: dict[str, list[tuple[str, int]]] = {}
        fresh: list[str] = []
        for name, alternatives in self._rules.items():
            for alternative in alternatives:
                needed = {use.name for use in alternative if use.is_needed}
                for one in needed:
                    waiting.setdefault(one, []).append((name, len(missing)))
                missing.append(len(needed))
                fresh += [] if needed else [name]
        used = {use.name for one in self._rules.values() for uses in one for use in uses}
        fresh += used - self._rules.keys() - dead
        ending: set[str] = set()
        while fresh:
            name = fresh.pop()
            for rule, place in [] if name in ending else waiting.get(name, []):
                missing[place] -= 1
                fresh += [] if missing[place] else [rule]
            ending.add(name)
        return ending
