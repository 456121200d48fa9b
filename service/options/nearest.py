"""Which known name was probably meant: words are compared before letters, since people mix up their order."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# Fewer letters are no beginning that could mean a name.
_BEGINNING = 3
# Of two names: the part of their letters, and of their words, that may differ for one to be meant.
_LETTERS, _WORDS = 1 / 3, 1 / 2


def edit_distance(left: str, right: str) -> int:
    """Insertions, deletions, replacements and swaps of neighbours that turn one word into the other."""
    before: list[int] = []
    current = list(range(len(right) + 1))
    for row, a in enumerate(left, start=1):
        before_last, before, current = before, current, [row]
        for column, b in enumerate(right, start=1):
            cost = min(before[column] + 1, current[column - 1] + 1, before[column - 1] + (a != b))
            is_swap = row > 1 and column > 1 and a == right[column - 2] and b == left[row - 2]
            if is_swap:
                cost = min(cost, before_last[column - 2] + 1)
            current.append(cost)
    return current[-1]


def nearest(word: str, names: Iterable[str]) -> str:
    """The best guess among ``names`` (at least one), however far it is: see `near`.

    A name that starts with the word, else the one with the same words or letters. Case, dashes and
    underscores do not count; of equals the first in the alphabet is taken.
    """
    return min(names, key=lambda name: (_difference(word, name), _letters_between(word, name), name))


def near(word: str, names: Iterable[str]) -> str | None:
    """The nearest of ``names``, None where no one is near: a wild guess leads astray."""
    known = list(names)
    guess = nearest(word, known) if known else None
    return guess if guess is not None and _difference(word, guess) <= 1 else None


def advice(word: str, names: Iterable[str], otherwise: str) -> str:
    """The nearest of ``names`` for people, or ``otherwise`` where no one is near."""
    guess = near(word, names)
    return otherwise if guess is None else f"the nearest is {guess}"


def is_near_miss(word: str, name: str) -> bool:
    """Whether ``word`` looks like a slip of the pen for ``name``: a few letters, fewer in short names."""
    tolerated = min(2, len(name) // 6)
    return word != name and edit_distance(word, name) <= tolerated


def _difference(word: str, name: str) -> float:
    """Up to 0 for the beginning of the name and for its words in any order; above 1 for another name."""
    wanted, known = _plain(word), _plain(name)
    if wanted == known or (len(wanted) >= _BEGINNING and known.startswith(wanted)):
        return -1
    letters = edit_distance(wanted, known) / max(len(wanted), len(known), 1)
    return min(letters / _LETTERS, _words_apart(wanted.split("-"), known.split("-")) / _WORDS)


def _words_apart(wanted: list[str], known: list[str]) -> float:
    """The part of all their words that only one of both has: 0 to 1."""
    left = list(known)
    for word in wanted:
        same = next((other for other in left if _is_same_word(word, other)), None)
        if same is not None:
            left.remove(same)
    shared = len(known) - len(left)
    return 1 - shared / (len(wanted) + len(known) - shared)


def _is_same_word(one: str, other: str) -> bool:
    """Also a word and its beginning: enable and enabled, mem and memory."""
    short, long = sorted((one, other), key=len)
    return one == other or (len(short) >= _BEGINNING and long.startswith(short))


def _letters_between(word: str, name: str) -> int:
    return edit_distance(_plain(word), _plain(name))


def _plain(word: str) -> str:
    return word.lower().replace("_", "-").lstrip("-")
