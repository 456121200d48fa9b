"""KV blocks that can be used again, by content. Pure bookkeeping: no tensors, no threads, no clock.

A block is known by everything in front of it and in it: the chain of its parents, its tokens, the
cache salt and the adapter. Its hash is only where to look; a hit compares the tokens themselves, and
that the parent is the very entry that was matched before it.

Whoever holds a block holds its parents, too. So entries become free from the leaves on, and the
least recently used free entry never has a child.
"""

from __future__ import annotations

import hashlib
import struct
from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from protocols.errors import InternalError
from protocols.steps import KvEvent, KvRemoved, KvStored

_HASH_BYTES = 8


class Root(NamedTuple):
    """Where chains begin: requests with different roots never share a block."""

    cache_salt: str | None = None
    adapter: str | None = None


class Entry:
    """A full block whose content is known. holders: sequences that use it; 0 means it may be evicted."""

    __slots__ = ("block", "block_hash", "holders", "parent", "root", "tokens")

    def __init__(
        self, block: int, block_hash: int, parent: Entry | None, root: Root, tokens: tuple[int, ...]
    ) -> None:
        self.block = block
        self.block_hash = block_hash
        self.parent = parent
        self.root = root
        self.tokens = tokens
        self.holders = 1


def content_hash(parent_hash: int | None, root: Root, tokens: tuple[int, ...]) -> int:
    """Unsigned 64-bit, the same in every process: routers compare the hashes of several workers."""
    digest = hashlib.blake2b(digest_size=_HASH_BYTES)
    if parent_hash is None:
        for part in root:
            text = b"" if part is None else part.encode()
            digest.update(struct.pack("<?Q", part is not None, len(text)) + text)
    else:
        digest.update(struct.pack("<Q", parent_hash))
    digest.update(array("I", tokens).tobytes())
    return int.from_bytes(digest.digest(), "little")


class PrefixCache:
    """Entries by hash, those without a holder also in the order of their last use.

    ``hash_of`` is a parameter so that tests can make hashes collide.
    """

    def __init__(
        self,
        block_tokens: int,
        hash_of: Callable[[int | None, Root, tuple[int, ...]], int] = content_hash,
    ) -> None:
        self.block_tokens = block_tokens
        self._hash_of = hash_of
        self._entries: dict[int, Entry] = {}
        self._by_block: dict[int, Entry] = {}
        # Insertion order is the order of eviction.
        self._unheld: dict[int, Entry] = {}
        self._events: list[KvEvent] = []

    @property
    def unheld_blocks(self) -> int:
        """Blocks that nobody holds and that are kept for reuse."""
        return len(self._unheld)

    def entry_of(self, block: int) -> Entry | None:
        """What is known about a block's content."""
        return self._by_block.get(block)

    def match(self, root: Root, tokens: list[int], most_blocks: int) -> list[Entry]:
        """The longest known chain at the beginning of ``tokens``, of ``most_blocks`` at most."""
        chain: list[Entry] = []
        parent: Entry | None = None
        for block_tokens in self._full_blocks(tokens, most_blocks):
            entry = self._find(parent, root, block_tokens)
            if entry is None:
                break
            chain.append(entry)
            parent = entry
        return chain

    def hold(self, entries: Iterable[Entry]) -> None:
        """One more holder for each."""
        for entry in entries:
            entry.holders += 1
            self._unheld.pop(entry.block, None)

    def let_go(self, block: int) -> bool:
        """One holder less. False for a block whose content is not known: it is simply free.

        Of a chain the last block must be let go first.
        """
        entry = self._by_block.get(block)
        if entry is None:
            return False
        if entry.holders < 1:
            raise InternalError(f"KV block {block} was released twice")
        entry.holders -= 1
        if entry.holders == 0:
            self._unheld[block] = entry
        return True

    def learn(self, block: int, parent: Entry | None, root: Root, tokens: tuple[int, ...]) -> Entry | None:
        """A block that is held once has this content now. The entry to go on from.

        That is another block's entry where the same content was known already; the caller then holds
        that one, and its own block is free. None where the hash belongs to other content: such a
        block, and what follows it, is not shared.
        """
        block_hash = self._hash_of(parent.block_hash if parent else None, root, tokens)
        known = self._entries.get(block_hash)
        if known is not None:
            if not _is_same(known, parent, root, tokens):
                return None
            self.hold([known])
            return known
        entry = Entry(block, block_hash, parent, root, tokens)
        self._entries[block_hash] = entry
        self._by_block[block] = entry
        self._note_stored(entry)
        return entry

    def evict(self, count: int) -> list[int]:
        """Forget the ``count`` blocks that were not used for the longest time; they are free then."""
        entries = [entry for entry, _ in zip(self._unheld.values(), range(count), strict=False)]
        for entry in entries:
            del self._unheld[entry.block]
            del self._by_block[entry.block]
            del self._entries[entry.block_hash]
        if entries:
            self._events.append(KvRemoved(block_hashes=tuple(entry.block_hash for entry in entries)))
        return [entry.block for entry in entries]

    def take_events(self) -> tuple[KvEvent, ...]:
        """What changed since the last call, in order."""
        events, self._events = tuple(self._events), []
        return events

    def _full_blocks(self, tokens: list[int], most_blocks: int) -> Iterator[tuple[int, ...]]:
        size = self.block_tokens
        for first in range(0, min(len(tokens) // size, most_blocks) * size, size):
            yield tuple(tokens[first : first + size])

    def _find(self, parent: Entry | None, root: Root, tokens: tuple[int, ...]) -> Entry | None:
        entry = self._entries.get(self._hash_of(parent.block_hash if parent else None, root, tokens))
        return entry if entry is not None and _is_same(entry, parent, root, tokens) else None

    def _note_stored(self, entry: Entry) -> None:
        """Blocks of one chain that become known one after the other are one event."""
        parent_hash = entry.parent.block_hash if entry.parent else None
        last = self._events[-1] if self._events else None
        hashes, tokens = (entry.block_hash,), entry.tokens
        if isinstance(last, KvStored) and parent_hash == last.block_hashes[-1]:
            hashes, tokens = last.block_hashes + hashes, last.token_ids + tokens
            parent_hash = last.parent_hash
            self._events.pop()
        self._events.append(
            KvStored(
                block_hashes=hashes,
                token_ids=tokens,
                block_tokens=self.block_tokens,
                parent_hash=parent_hash,
                cache_salt=entry.root.cache_salt,
                adapter=entry.root.adapter,
            )
        )


def _is_same(entry: Entry, parent: Entry | None, root: Root, tokens: tuple[int, ...]) -> bool:
    return entry.parent is parent and entry.tokens == tokens and entry.root == root
