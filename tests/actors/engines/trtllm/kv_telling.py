"""Rows about the KV cache as TensorRT-LLM serialises them, and a router that hears what becomes of them."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from protocols.steps import KvCleared, KvLost, KvMalformed, KvRemoved, KvStored

if TYPE_CHECKING:
    from protocols.steps import KvEvent

BLOCK = 4


def block(name: Any, size: int = BLOCK, **changes: Any) -> dict[str, Any]:
    """A block whose tokens follow from its hash."""
    first = name * BLOCK if isinstance(name, int) else 0
    return {
        "type": "stored_block",
        "block_hash": name,
        "tokens": [
            {"type": "unique_token", "token_id": (first + place) % 1000, "token_extra_id": 0}
            for place in range(size)
        ],
        "cache_level": 0,
        "priority": 35,
        "mm_keys": [],
        "cache_salt": None,
        **changes,
    }


class Telling:
    """An engine's events of one rank, numbered. rank: None without attention DP."""

    def __init__(self, rank: int | None = None, window: int | None = 4096) -> None:
        self._envelope = {} if rank is None else {"attention_dp_rank": rank}
        self._window = window
        self._ids = count()

    def lose(self, events: int) -> None:
        """The engine's buffer has no room for so many."""
        for _ in range(events):
            next(self._ids)

    def created(self, window: int | None = None) -> dict[str, Any]:
        return self._row({"type": "created", "num_blocks_per_cache_level": [64, 0]}, window)

    def stored(
        self, *blocks: Any, parent: Any = None, window: int | None = None, **data: Any
    ) -> dict[str, Any]:
        """Whole numbers are full blocks of that hash."""
        told = [block(each) if isinstance(each, int) else each for each in blocks]
        return self._row({"type": "stored", "parent_hash": parent, "blocks": told, **data}, window)

    def removed(self, *names: Any, window: int | None = None) -> dict[str, Any]:
        return self._row({"type": "removed", "block_hashes": list(names)}, window)

    def updated(self, name: int) -> dict[str, Any]:
        level = {"type": "event_diff", "new_value": 1, "old_value": 0}
        return self._row(
            {"type": "updated", "block_hash": name, "cache_level": level, "priority": None}, None
        )

    def _row(self, data: dict[str, Any], window: int | None) -> dict[str, Any]:
        row: dict[str, Any] = {"event_id": next(self._ids), "data": data, **self._envelope}
        told = window or self._window
        return row if told is None else {**row, "window_size": told}


class StrictRouter:
    """What a router of one rank knows. Fails the test for everything that a real one would stumble over."""

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self.names: set[int] = set()

    def hear(self, event: KvEvent) -> None:
        """One event of the driver."""
        match event:
            case KvStored():
                assert len(event.token_ids) == len(event.block_hashes) * self._block_tokens > 0, (
                    "blocks are full"
                )
                parents = (event.parent_hash, *event.block_hashes)
                for parent, name in zip(parents, event.block_hashes, strict=False):
                    assert parent is None or parent in self.names, "parents come first"
                    assert 0 <= name < 2**64
                    self.names.add(name)
            case KvRemoved():
                assert event.block_hashes, "a removal of nothing"
                assert self.names.issuperset(event.block_hashes), "only what was told is removed"
                self.names.difference_update(event.block_hashes)
            case KvCleared():
                self.names.clear()
            case KvLost() | KvMalformed():
                assert event.count > 0
