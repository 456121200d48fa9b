"""What was made of constraints, kept by the constraints it was made from."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

from actors.engines.grammars.limits import MOST_CACHED, MOST_CACHED_BYTES, text_of
from protocols.bounds import Bound, OnBound, ignore_bound
from protocols.spec import Guided, GuidedKind

Made = TypeVar("Made")
Key = tuple[GuidedKind, bool, str]


class ConstraintCache(Generic[Made]):
    """The most recently used ones, bounded in number and in bytes. Any thread.

    on_bound: told of those that make room for others.
    """

    def __init__(
        self,
        entries: int = MOST_CACHED,
        most_bytes: int = MOST_CACHED_BYTES,
        on_bound: OnBound = ignore_bound,
    ) -> None:
        self._on_bound = on_bound
        self._most_entries = entries
        self._most_bytes = most_bytes
        self._kept: OrderedDict[Key, tuple[Made, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def find(self, guided: Guided) -> Made | None:
        """What was made of an equal constraint. Raises InvalidRequest for one that nothing is made of."""
        key = _key(guided)
        with self._lock:
            kept = self._kept.get(key)
            if kept is None:
                return None
            self._kept.move_to_end(key)
            return kept[0]

    def keep(self, guided: Guided, made: Made, size: int) -> None:
        """Keep one that takes ``size`` bytes, and its source; the least recently used ones make room."""
        key = _key(guided)
        size += len(key[2])
        with self._lock:
            _, before = self._kept.pop(key, (None, 0))
            self._kept[key] = made, size
            self._bytes += size - before
            while len(self._kept) > self._most_entries or self._bytes > self._most_bytes:
                _, (_, freed) = self._kept.popitem(last=False)
                self._bytes -= freed
                self._on_bound(Bound.GRAMMAR_CACHE)


def _key(guided: Guided) -> Key:
    """A text is not the object it describes: one may be wrong where the other is right."""
    return guided.kind, isinstance(guided.constraint, str), text_of(guided)
