"""Which known name was probably meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


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
    """The best guess among ``names`` (at least one): a name that starts with the word, else the closest.

    Case, dashes and underscores do not count; of equals the first in the alphabet is taken.
    """
    wanted = _plain(word)

    def rank(name: str) -> tuple[bool, int, str]:
        plain = _plain(name)
        return not plain.startswith(wanted), edit_distance(wanted, plain), name

    return min(names, key=rank)


def is_near_miss(word: str, name: str) -> bool:
    """Whether ``word`` looks like a slip of the pen for ``name``: a few letters, fewer in short names."""
    tolerated = min(2, len(name) // 6)
    return word != name and edit_distance(word, name) <= tolerated


def _plain(word: str) -> str:
    return word.lower().replace("_", "-").lstrip("-")
