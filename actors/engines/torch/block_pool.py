"""Who holds which KV blocks: free ones, held ones, and those kept in case somebody asks again.

The numbers are in `blocks`, the knowledge of contents in `prefix_cache`; this is where both meet.
"""

from __future__ import annotations

from collections.abc import Callable

from actors.engines.torch.blocks import BlockAllocator
from actors.engines.torch.prefix_cache import Entry, PrefixCache
from actors.engines.torch.sequence import Sequence
from protocols.bounds import Bound, OnBound, ignore_bound
from protocols.errors import InternalError
from protocols.steps import KvEvent


class BlockPool:
    """Blocks for sequences. ``scrub`` zeroes blocks whose content was never proved finite.

    What is kept for reuse was proved: it is only learned once a token was chosen behind it.
    on_bound: told of every block that is kept no longer, because somebody needs one.
    """

    def __init__(
        self,
        allocator: BlockAllocator,
        cache: PrefixCache,
        scrub: Callable[[list[int]], None],
        on_bound: OnBound = ignore_bound,
    ) -> None:
        self._on_bound = on_bound
        self._allocator = allocator
        self._cache = cache
        self._scrub = scrub
        self._block_tokens = cache.block_tokens

    @property
    def available_blocks(self) -> int:
        """Free ones, and those that can be evicted at once."""
        return self._allocator.free_blocks + self._cache.unheld_blocks

    @property
    def used_blocks(self) -> int:
        """Blocks that sequences hold."""
        return self._allocator.total_blocks - self.available_blocks

    @property
    def cached_blocks(self) -> int:
        """Blocks that nobody holds and that are kept for reuse."""
        return self._cache.unheld_blocks

    def find(self, sequence: Sequence, most_tokens: int) -> list[Entry]:
        """The known blocks within the first ``most_tokens`` of a sequence. Holds nothing."""
        return self._cache.match(sequence.content, most_tokens // self._block_tokens)

    def reach_of(self, known: list[Entry]) -> int:
        """Blocks a sequence could have if it took these: themselves, and what is available beside them."""
        return self.available_blocks + sum(entry.holders > 0 for entry in known)

    def give(self, sequence: Sequence, known: list[Entry], count: int) -> None:
        """Known blocks and then new ones, ``count`` in all, to a sequence without blocks.

        Raises InternalError when fewer are available; the caller has looked.
        """
        self._cache.hold(known)
        blocks = self._allocate(count - len(known), known[-1].block if known else None)
        if blocks is None:
            raise InternalError(f"{count} KV blocks were available and are not")
        sequence.blocks = [entry.block for entry in known] + blocks
        sequence.entries = list(known)
        sequence.known_tokens = sequence.computed_tokens = len(known) * self._block_tokens

    def give_one_more(self, sequence: Sequence) -> bool:
        """The block of the newest token. False when none is available."""
        blocks = self._allocate(1, sequence.blocks[-1])
        if blocks is None:
            return False
        sequence.blocks += blocks
        return True

    def learn(self, sequence: Sequence) -> None:
        """A token was chosen behind what is computed: the full blocks there can be shared from now on."""
        full = sequence.computed_tokens // self._block_tokens
        while len(sequence.entries) < full and not sequence.is_private:
            place = len(sequence.entries)
            parent = sequence.entries[-1] if sequence.entries else None
            entry = self._cache.learn(sequence.blocks[place], parent, sequence.content, place)
            if entry is None:
                sequence.is_private = True
                return
            if entry.block != sequence.blocks[place]:
                # The same content twice: one copy is enough.
                self._allocator.release([sequence.blocks[place]])
                sequence.blocks[place] = entry.block
            sequence.entries.append(entry)

    def take_back(self, sequence: Sequence, *, is_proved: bool) -> None:
        """All blocks of a sequence. Those with known content stay for reuse, the last ones go first."""
        private = [block for block in reversed(sequence.blocks) if not self._cache.let_go(block)]
        if private and not is_proved:
            self._scrub(private)
        self._allocator.release(private)
        sequence.blocks = []
        sequence.entries = []
        sequence.is_private = False
        sequence.computed_tokens = 0

    def take_events(self) -> tuple[KvEvent, ...]:
        """What became known and what was evicted since the last call, in order."""
        return self._cache.take_events()

    def _allocate(self, count: int, after: int | None) -> list[int] | None:
        missing = count - self._allocator.free_blocks
        if missing > self._cache.unheld_blocks:
            return None
        if missing > 0:
            self._allocator.release(self._cache.evict(missing))
            self._on_bound(Bound.KV_CACHE, missing)
        return self._allocator.allocate(count, after)
