"""What the words of a container mean on this machine."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence


class Places:
    """Turns the words of a compose file into those of a process of this machine.

    whole: words that are replaced as they stand (a port). inside: parts of words, from where a name or a
    path begins (host:port, folders). foreign: what must not be left in any word, for it would mean a
    container's place.
    """

    def __init__(self, whole: Mapping[str, str], inside: Mapping[str, str], foreign: Sequence[str]) -> None:
        self._whole = dict(whole)
        self._inside = dict(inside)
        self._foreign = tuple(foreign)
        # All at once, the longest first: what was put in is never replaced again.
        longest_first = sorted(map(re.escape, self._inside), key=len, reverse=True)
        self._pattern = re.compile(rf"(?<![\w.-])(?:{'|'.join(longest_first)})")

    def here(self, word: str) -> str:
        """The word for a process. Raises AssertionError where it still means a container's place."""
        if word in self._whole:
            return self._whole[word]
        left = self._pattern.sub("", word)
        found = [name for name in self._foreign if name in left]
        assert not found, f"{word!r} means a place of a container that has none here: {found}"
        return self._pattern.sub(lambda match: self._inside[match[0]], word)
