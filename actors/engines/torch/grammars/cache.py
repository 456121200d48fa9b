"""Compiled grammars, kept by what they were made from."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from actors.engines.torch.grammars.limits import MOST_CACHED, MOST_CACHED_BYTES, text_of
from protocols.spec import Guided, GuidedKind

if TYPE_CHECKING:
    from actors.engines.torch.grammars.compiler import CompiledGrammar

Key = tuple[GuidedKind, bool, str]


class GrammarCache:
    """The most recently used ones, bounded in number and in the bytes of their sources. Any thread."""

    def __init__(self, entries: int = MOST_CACHED, source_bytes: int = MOST_CACHED_BYTES) -> None:
        self._most_entries = entries
        self._most_bytes = source_bytes
        self._kept: OrderedDict[Key, CompiledGrammar] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def find(self, guided: Guided) -> CompiledGrammar | None:
        """The grammar of an equal constraint. Raises InvalidRequest for one that no grammar is made of."""
        key = _key(guided)
        with self._lock:
            grammar = self._kept.get(key)
            if grammar is not None:
                self._kept.move_to_end(key)
            return grammar

    def keep(self, guided: Guided, grammar: CompiledGrammar) -> None:
        """Keep one; the least recently used ones make room."""
        key = _key(guided)
        with self._lock:
            if key not in self._kept:
                self._bytes += _size(key)
            self._kept[key] = grammar
            self._kept.move_to_end(key)
            while len(self._kept) > self._most_entries or self._bytes > self._most_bytes:
                oldest, _ = self._kept.popitem(last=False)
                self._bytes -= _size(oldest)


def _key(guided: Guided) -> Key:
    """A text is not the object it describes: one may be wrong where the other is right."""
    return guided.kind, isinstance(guided.constraint, str), text_of(guided)


def _size(key: Key) -> int:
    return len(key[2].encode())
