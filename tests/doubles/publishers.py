"""The framework's publishers of KV events and snapshots; behind the first a router that believes them."""

from __future__ import annotations

from typing import Any


class RouterDouble:
    """Takes batches as the framework's publisher does, and is as strict as the router behind it.

    Blocks are full, hashes signed 64-bit, parents known before their children: what breaks that fails the
    test right here. `mood`: raised by every call while it is set.
    """

    def __init__(self, block_tokens: int = 4) -> None:
        self.block_tokens = block_tokens
        self.mood: Exception | None = None
        self.batches: list[list[dict[str, Any]]] = []
        # Signed hash -> (parent, tokens, salt).
        self.blocks: dict[int, tuple[int | None, tuple[int, ...], str | None]] = {}

    def publish_batch(self, events: list[dict[str, Any]]) -> None:
        if self.mood is not None:
            raise self.mood
        assert events, "a call about nothing"
        self.batches.append(events)
        for event in events:
            if event["type"] == "stored":
                self._store(**{"parent_hash": None, "cache_salt": None, "lora_name": None, **event})
            else:
                self._remove(event["block_hashes"])

    def forget(self) -> None:
        """The worker left discovery."""
        self.blocks.clear()

    @property
    def events(self) -> list[dict[str, Any]]:
        """Everything that was taken, in order."""
        return [event for batch in self.batches for event in batch]

    def _store(
        self,
        *,
        type: str,  # noqa: A002 - the framework's word
        token_ids: list[int],
        num_block_tokens: list[int],
        block_hashes: list[int],
        parent_hash: int | None,
        cache_salt: str | None,
        lora_name: str | None,
    ) -> None:
        assert num_block_tokens == [self.block_tokens] * len(block_hashes), "blocks are full"
        assert len(token_ids) == self.block_tokens * len(block_hashes)
        assert all(0 <= token < 2**32 for token in token_ids)
        for place, block_hash in enumerate(block_hashes):
            assert -(2**63) <= block_hash < 2**63, "hashes are signed"
            assert parent_hash is None or parent_hash in self.blocks, "the parent is known"
            first = place * self.block_tokens
            tokens = tuple(token_ids[first : first + self.block_tokens])
            self.blocks[block_hash] = (parent_hash, tokens, cache_salt)
            parent_hash = block_hash

    def _remove(self, block_hashes: list[int]) -> None:
        for block_hash in block_hashes:
            self.blocks.pop(block_hash, None)


class GaugesDouble:
    """The framework's snapshot publisher."""

    def __init__(self) -> None:
        self.mood: Exception | None = None
        self.snapshots: list[tuple[int, Any]] = []

    def publish(self, rank: int, snapshot: Any) -> None:
        if self.mood is not None:
            raise self.mood
        self.snapshots.append((rank, snapshot))
