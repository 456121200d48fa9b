"""What lies in the KV cache of one rank, as the engine's events say. Pure bookkeeping.

Routers hear of changes only, so whoever fell behind or has forgotten us needs the whole of it again: the
index can tell it, parents before their children.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from protocols.steps import KvRemoved, KvStored

_MOST_HASH = 2**64 - 1
_MOST_TOKEN = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Block:
    """One full block. parent_hash: of the block in front of it, None at the beginning of a prompt."""

    parent_hash: int | None
    token_ids: tuple[int, ...]
    cache_salt: str | None
    adapter: str | None


class KvIndex:
    """Blocks by hash, at most ``most_blocks``. block_tokens: tokens of each."""

    def __init__(self, block_tokens: int, most_blocks: int) -> None:
        self._block_tokens = block_tokens
        self._most_blocks = most_blocks
        self._blocks: dict[int, Block] = {}

    def __len__(self) -> int:
        return len(self._blocks)

    def store(self, event: KvStored) -> bool:
        """Note full blocks. False, and nothing noted, where the event cannot be true."""
        if not (self.is_sound(event) and self.has_room(event)):
            return False
        parent_hash = event.parent_hash
        for place, block_hash in enumerate(event.block_hashes):
            first = place * self._block_tokens
            tokens = event.token_ids[first : first + self._block_tokens]
            # One that is stored again moves behind its parent.
            self._blocks.pop(block_hash, None)
            self._blocks[block_hash] = Block(parent_hash, tokens, event.cache_salt, event.adapter)
            parent_hash = block_hash
        return True

    def has_room(self, event: KvStored) -> bool:
        """Whether these blocks fit beside those that are known."""
        new = sum(each not in self._blocks for each in event.block_hashes)
        return len(self._blocks) + new <= self._most_blocks

    def remove(self, event: KvRemoved) -> tuple[int, ...]:
        """Forget blocks. Those that were known: of the others nobody was ever told."""
        return tuple(each for each in event.block_hashes if self._blocks.pop(each, None) is not None)

    def clear(self) -> tuple[int, ...]:
        """Forget everything. What was known, in the order in which it was stored."""
        known = tuple(self._blocks)
        self._blocks.clear()
        return known

    def chains(self) -> Iterator[KvStored]:
        """Everything, in pieces that each go on from one block to the next; a piece's parent comes before it.

        Blocks whose parents are gone are left out: no router takes them.
        """
        children: defaultdict[int | None, list[int]] = defaultdict(list)
        for block_hash, block in self._blocks.items():
            children[block.parent_hash].append(block_hash)
        starts = children[None][::-1]
        while starts:
            chain = [starts.pop()]
            while following := children.get(chain[-1]):
                starts += following[:0:-1]
                chain.append(following[0])
            yield self._piece(chain)

    def _piece(self, chain: Sequence[int]) -> KvStored:
        """Salt and adapter belong to where a chain begins; all its blocks have the same."""
        first = self._blocks[chain[0]]
        return KvStored(
            block_hashes=tuple(chain),
            token_ids=tuple(token for each in chain for token in self._blocks[each].token_ids),
            block_tokens=self._block_tokens,
            parent_hash=first.parent_hash,
            cache_salt=first.cache_salt,
            adapter=first.adapter,
        )

    def is_sound(self, event: KvStored) -> bool:
        """Whether these are full blocks of our size behind a known one, in the ranges that routers read."""
        hashes, token_ids = event.block_hashes, event.token_ids
        return (
            len(hashes) > 0
            and event.block_tokens == self._block_tokens
            and len(token_ids) == len(hashes) * self._block_tokens
            and len(set(hashes)) == len(hashes)
            and all(type(each) is int for each in (*hashes, *token_ids))
            and min(hashes) >= 0
            and max(hashes) <= _MOST_HASH
            and min(token_ids) >= 0
            and max(token_ids) <= _MOST_TOKEN
            and (event.parent_hash is None or event.parent_hash in self._blocks)
            and event.parent_hash not in hashes
        )
