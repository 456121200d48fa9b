"""Which logits processors were made before, with which options: they need not be tried again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from actors.engines.grammars.plain import is_longer, write_json
from protocols.bounds import Bound, OnBound, ignore_bound
from protocols.spec import ProcessorEntry

_MOST = 256
# Of options, as JSON. Longer ones are tried every time: comparing them is work for the event loop.
_MOST_CHARACTERS = 2_000


class TriedProcessors:
    """Names and options, the most recently used ones. Event loop.

    A factory that accepted some options once may refuse them later: then the request fails when its
    instances are made. on_bound: told of those that make room for others.
    """

    def __init__(self, entries: int = _MOST, on_bound: OnBound = ignore_bound) -> None:
        self._on_bound = on_bound
        self._entries = entries
        self._kept: OrderedDict[str, None] = OrderedDict()

    def has_all(self, entries: Iterable[ProcessorEntry]) -> bool:
        """Whether each of them was kept, with equal options."""
        keys = [_key(entry) for entry in entries]
        for key in keys:
            if key is None or key not in self._kept:
                return False
            self._kept.move_to_end(key)
        return True

    def keep(self, entries: Iterable[ProcessorEntry]) -> None:
        """They were made."""
        for key in map(_key, entries):
            if key is not None:
                self._kept[key] = None
                self._kept.move_to_end(key)
        while len(self._kept) > self._entries:
            self._kept.popitem(last=False)
            self._on_bound(Bound.TRIED_PROCESSORS)


def _key(entry: ProcessorEntry) -> str | None:
    """None for what is too long, or for options that JSON does not have: they could be equal and differ."""
    if is_longer(entry.options, _MOST_CHARACTERS):
        return None
    try:
        return write_json([entry.name, sorted(entry.options.items())])
    except (TypeError, ValueError, RecursionError):
        return None
