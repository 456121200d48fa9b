"""Replays an engine's events about its KV cache, as a router does, and holds its counts against its pool."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocols.steps import KvRemoved, KvStored

if TYPE_CHECKING:
    from protocols.engine import EngineInfo
    from protocols.steps import EngineStep, KvEvent


class HeardBlocks:
    """What lies in the cache according to the events so far. Each rank's: hash -> parent's hash.

    used: blocks of requests after the last step. most_used: the largest of these; a test may set it back.
    """

    def __init__(self, info: EngineInfo) -> None:
        self._info = info
        self.known: list[dict[int, int | None]] = [{} for _ in range(info.data_parallel_size)]
        self.used = self.most_used = 0

    def on_step(self, step: EngineStep) -> None:
        """Take a step's events and counts in, or fail the test with the promise one breaks."""
        for event in step.kv_events:
            self._on_event(event)
        self.used = step.used_blocks
        self.most_used = max(self.most_used, self.used)
        if self._info.total_blocks is None or self._info.all_blocks is None:
            assert (step.used_blocks, step.cached_blocks) == (0, 0), "blocks, and no cache"
            return
        assert step.used_blocks + step.cached_blocks <= self._info.all_blocks, "more blocks than there are"
        for known in self.known:
            assert len(known) <= self._info.total_blocks, "more blocks are known than there are"
        self._check_ranks(step)

    def _check_ranks(self, step: EngineStep) -> None:
        if not step.ranks:
            return
        numbers = [blocks.rank for blocks in step.ranks]
        assert numbers == sorted(set(numbers)), "ranks that come twice, or out of order"
        assert set(numbers) <= set(range(self._info.data_parallel_size)), "a rank that does not exist"
        assert all(blocks.used <= blocks.total for blocks in step.ranks), "a rank uses more than it has"
        assert sum(blocks.used for blocks in step.ranks) == step.used_blocks, "ranks that do not add up"

    def _on_event(self, event: KvEvent) -> None:
        known = self.known[event.rank]
        if isinstance(event, KvStored):
            self._on_stored(event, known)
            return
        assert isinstance(event, KvRemoved), "an engine that does not know its cache"
        for block_hash in event.block_hashes:
            assert block_hash in known, "a block is removed that nobody knew"
            del known[block_hash]
        parents = set(known.values()) - {None}
        assert parents <= known.keys(), "a block is removed before its children"

    def _on_stored(self, event: KvStored, known: dict[int, int | None]) -> None:
        size = self._info.block_tokens
        assert event.block_tokens == size, "a block of another size"
        assert len(event.token_ids) == len(event.block_hashes) * event.block_tokens, (
            "a block that is not full"
        )
        parent = event.parent_hash
        for block_hash in event.block_hashes:
            assert 0 <= block_hash < 2**64, "a hash that has no 64 bits"
            assert block_hash not in known, "a block is stored twice"
            assert parent is None or parent in known, "a block is stored before its parent"
            known[block_hash] = parent
            parent = block_hash
