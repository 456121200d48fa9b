"""Which KV blocks are free. Pure bookkeeping; the memory behind it is in `kv_cache`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from protocols.errors import InternalError

_FREE = 1
_FREE_RUN = re.compile(rb"\x01+")


class BlockAllocator:
    """Hands out block numbers 0 .. total-1, in consecutive runs wherever it can.

    A sequence whose blocks follow each other is read without a copy, so a new run is put in the
    middle of the longest free stretch: it and its neighbour in front both have room to grow.
    """

    def __init__(self, total_blocks: int) -> None:
        self.total_blocks = total_blocks
        self._map = bytearray([_FREE]) * total_blocks
        self.free_blocks = total_blocks

    @property
    def used_blocks(self) -> int:
        """Blocks that belong to somebody."""
        return self.total_blocks - self.free_blocks

    def allocate(self, count: int, after: int | None = None) -> list[int] | None:
        """``count`` blocks, or None when fewer are free. ``after``: last block the asker has."""
        if count > self.free_blocks:
            return None
        if after is not None and self._is_free_run(after + 1, count):
            blocks = list(range(after + 1, after + 1 + count))
        else:
            blocks = self._place(count)
        for block in blocks:
            self._map[block] = 0
        self.free_blocks -= count
        return blocks

    def release(self, blocks: Iterable[int]) -> None:
        """Give blocks back. Raises InternalError for a block that is free already."""
        for block in blocks:
            if self._map[block] == _FREE:
                raise InternalError(f"KV block {block} was released twice")
            self._map[block] = _FREE
            self.free_blocks += 1

    def _is_free_run(self, start: int, count: int) -> bool:
        return self._map.startswith(bytes([_FREE]) * count, start)

    def _place(self, count: int) -> list[int]:
        runs = [match.span() for match in _FREE_RUN.finditer(self._map)]
        start, end = max(runs, key=lambda run: run[1] - run[0], default=(0, 0))
        if end - start >= count:
            first = start if start == 0 else start + (end - start - count) // 2
            return list(range(first, first + count))
        scattered = (block for begin, stop in runs for block in range(begin, stop))
        return [block for block, _ in zip(scattered, range(count), strict=False)]
