"""Replays an engine's events about its KV cache, as a router does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocols.steps import KvRemoved, KvStored

if TYPE_CHECKING:
    from protocols.engine import EngineInfo
    from protocols.steps import EngineStep, KvEvent


class HeardBlocks:
    """What lies in the cache according to the events so far. Hash -> parent's hash."""

    def __init__(self, info: EngineInfo) -> None:
        self._info = info
        self.known: dict[int, int | None] = {}

    def on_step(self, step: EngineStep) -> None:
        """Take a step's events in, or fail the test with the promise one breaks."""
        for event in step.kv_events:
            self._on_event(event)
        total = self._info.total_blocks
        if total is not None:
            assert step.used_blocks + step.cached_blocks <= total, "more blocks than there are"
            assert len(self.known) <= total, "more blocks are known than there are"

    def _on_event(self, event: KvEvent) -> None:
        if isinstance(event, KvStored):
            self._on_stored(event)
            return
        assert isinstance(event, KvRemoved), "an engine that does not know its cache"
        for block_hash in event.block_hashes:
            assert block_hash in self.known, "a block is removed that nobody knew"
            del self.known[block_hash]
        parents = set(self.known.values()) - {None}
        assert parents <= self.known.keys(), "a block is removed before its children"

    def _on_stored(self, event: KvStored) -> None:
        size = self._info.block_tokens
        assert event.block_tokens == size, "a block of another size"
        assert len(event.token_ids) == len(event.block_hashes) * event.block_tokens, (
            "a block that is not full"
        )
        parent = event.parent_hash
        for block_hash in event.block_hashes:
            assert 0 <= block_hash < 2**64, "a hash that has no 64 bits"
            assert block_hash not in self.known, "a block is stored twice"
            assert parent is None or parent in self.known, "a block is stored before its parent"
            self.known[block_hash] = parent
            parent = block_hash
