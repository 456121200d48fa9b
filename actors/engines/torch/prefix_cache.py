"""KV blocks that can be used again, by content. Pure bookkeeping: no tensors, no threads, no clock.

A block is known by everything in front of it and in it: the chain of its parents, its tokens, the
cache salt and the adapter. Its hash is only where to look; a hit compares the tokens themselves, and
that the parent is the very entry that was matched before it.

K and V of generated tokens differ in their last bits from those of the same tokens in a prompt, as
other kernels computed them. A prompt takes both; what a sequence has generated is only ever taken for
the same tokens generated again, so an answer never changes because somebody's prompt contains it.

Whoever holds a block holds its parents, too. So entries become free from the leaves on, and the
least recently used free entry never has a child.
"""

from __future__ import annotations

import hashlib
import struct
from array import array
from collections.abc import Callable, Iterable
from typing import NamedTuple

from protocols.errors import InternalError
from protocols.steps import KvEvent, KvRemoved, KvStored

_HASH_BYTES = 8


class Root(NamedTuple):
    """Where chains begin: requests with different roots never share a block."""

    cache_salt: str | None = None
    adapter: str | None = None


class Content:
    """What a sequence's blocks are known by: its root and its tokens, the first ``prompt_tokens`` a prompt.

    tokens: the sequence's own list, which only grows. hashes: of its full blocks, as far as somebody asked.
    """

    __slots__ = ("hashes", "prompt_tokens", "root", "tokens")

    def __init__(self, root: Root, tokens: list[int], prompt_tokens: int) -> None:
        self.root = root
        self.tokens = tokens
        self.prompt_tokens = prompt_tokens
        self.hashes: list[int] = []


class Entry:
    """A full block whose content is known.

    prompt_tokens: how many of its tokens were computed as a prompt's. holders: sequences that use it;
    0 means that it may be evicted.
    """

    __slots__ = ("block", "block_hash", "holders", "parent", "prompt_tokens", "root", "tokens")

    def __init__(self, block: int, parent: Entry | None, content: Content, place: int, size: int) -> None:
        first = place * size
        self.block = block
        self.block_hash = content.hashes[place]
        self.parent = parent
        self.root = content.root
        self.tokens = tuple(content.tokens[first : first + size])
        self.prompt_tokens = min(max(content.prompt_tokens - first, 0), size)
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
        # Of one chain, in order, not yet among the events.
        self._stored: list[Entry] = []

    @property
    def unheld_blocks(self) -> int:
        """Blocks that nobody holds and that are kept for reuse."""
        return len(self._unheld)

    def entry_of(self, block: int) -> Entry | None:
        """What is known about a block's content."""
        return self._by_block.get(block)

    def match(self, content: Content, most_blocks: int) -> list[Entry]:
        """The longest known chain at the beginning of ``content``, of ``most_blocks`` at most."""
        chain: list[Entry] = []
        parent: Entry | None = None
        for place in range(min(len(content.tokens) // self.block_tokens, most_blocks)):
            entry = self._entries.get(self._hash_at(content, place))
            if entry is None or not self._is_fit(entry, parent, content, place):
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

    def learn(self, block: int, parent: Entry | None, content: Content, place: int) -> Entry | None:
        """A block that is held once has the ``place``-th full block of ``content``. The entry to go on from.

        That is another block's entry where the same content was known already; the caller then holds
        that one, and its own block is free. None where the hash belongs to content that cannot stand
        for this: such a block, and what follows it, is not shared.
        """
        known = self._entries.get(self._hash_at(content, place))
        if known is not None:
            if not self._is_fit(known, parent, content, place):
                return None
            self.hold([known])
            return known
        entry = Entry(block, parent, content, place, self.block_tokens)
        self._entries[entry.block_hash] = entry
        self._by_block[block] = entry
        if self._stored and self._stored[-1] is not parent:
            self._tell_stored()
        self._stored.append(entry)
        return entry

    def evict(self, count: int) -> list[int]:
        """Forget the ``count`` blocks that were not used for the longest time; they are free then."""
        entries = [entry for entry, _ in zip(self._unheld.values(), range(count), strict=False)]
        for entry in entries:
            del self._unheld[entry.block]
            del self._by_block[entry.block]
            del self._entries[entry.block_hash]
        if entries:
            self._tell_stored()
            self._events.append(KvRemoved(block_hashes=tuple(entry.block_hash for entry in entries)))
        return [entry.block for entry in entries]

    def take_events(self) -> tuple[KvEvent, ...]:
        """What changed since the last call, in order."""
        self._tell_stored()
        events, self._events = tuple(self._events), []
        return events

    def _hash_at(self, content: Content, place: int) -> int:
        """Of a full block; each is computed once in the life of a sequence."""
        size, hashes = self.block_tokens, content.hashes
        while len(hashes) <= place:
            first = len(hashes) * size
            tokens = tuple(content.tokens[first : first + size])
            hashes.append(self._hash_of(hashes[-1] if hashes else None, content.root, tokens))
        return hashes[place]

    def _is_fit(self, entry: Entry, parent: Entry | None, content: Content, place: int) -> bool:
        """Whether this entry is the content's block, with the bits that it has to have."""
        first, size = place * self.block_tokens, self.block_tokens
        prompt_tokens = min(max(content.prompt_tokens - first, 0), size)
        return (
            entry.parent is parent
            and prompt_tokens in (size, entry.prompt_tokens)
            and entry.root == content.root
            and entry.tokens == tuple(content.tokens[first : first + size])
        )

    def _tell_stored(self) -> None:
        """Blocks of one chain that became known one after the other are one event."""
        entries, self._stored = self._stored, []
        if not entries:
            return
        first = entries[0]
        self._events.append(
            KvStored(
                block_hashes=tuple(entry.block_hash for entry in entries),
                token_ids=tuple(token for entry in entries for token in entry.tokens),
                block_tokens=self.block_tokens,
                parent_hash=first.parent.block_hash if first.parent else None,
                cache_salt=first.root.cache_salt,
                adapter=first.root.adapter,
            )
        )
