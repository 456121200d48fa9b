"""The memory behind the KV blocks: two pools per layer, and one scratch area to gather into.

Fresh tensors of some megabytes are new mappings with a page fault per 4 KiB, which cost more than
the attention itself; so everything here is allocated and touched once, at the start.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class LayerShape(NamedTuple):
    """K and V of one layer: heads and widths as the attention function received them."""

    kv_heads: int
    key_width: int
    value_width: int

    @property
    def numbers_per_token(self) -> int:
        """Elements of K and V together."""
        return self.kv_heads * (self.key_width + self.value_width)


class Scratch:
    """One buffer that all layers gather into, one after the other."""

    def __init__(self, numbers: int, dtype: torch.dtype, device: torch.device) -> None:
        self._buffer = torch.zeros(numbers, dtype=dtype, device=device)

    def gather(self, pool: Tensor, blocks: Tensor, block_tokens: int) -> Tensor:
        """Rows of whole blocks: ``[len(blocks) * block_tokens, heads, width]``, valid until the next call."""
        heads, width = pool.shape[1:]
        block_numbers = block_tokens * heads * width
        count = blocks.shape[0]
        target = self._buffer[: count * block_numbers].view(count, block_numbers)
        torch.index_select(pool.view(-1, block_numbers), 0, blocks, out=target)
        return target.view(count * block_tokens, heads, width)


class KvCache:
    """Pools ``[blocks * block_tokens, heads, width]`` per layer for K and for V."""

    def __init__(
        self,
        shapes: list[LayerShape],
        total_blocks: int,
        block_tokens: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.block_tokens = block_tokens
        self.total_blocks = total_blocks
        rows = total_blocks * block_tokens

        def pool(heads: int, width: int) -> Tensor:
            # fill_ touches the pages: zeros alone leaves the faults to the first requests.
            return torch.empty(rows, heads, width, dtype=dtype, device=device).fill_(0)

        self.keys = [pool(shape.kv_heads, shape.key_width) for shape in shapes]
        self.values = [pool(shape.kv_heads, shape.value_width) for shape in shapes]

    def write(self, layer: int, key: Tensor, value: Tensor, slots: Tensor) -> None:
        """Store K and V ``[tokens, heads, width]`` at the rows ``slots`` of the pools."""
        self.keys[layer].index_copy_(0, slots, key)
        self.values[layer].index_copy_(0, slots, value)

    def scrub(self, blocks: list[int]) -> None:
        """Zero blocks that may hold non-finite values; a masked read would spread those (0 x NaN)."""
        index = torch.tensor(blocks, device=self.keys[0].device)
        for pool in (*self.keys, *self.values):
            pool.view(self.total_blocks, -1).index_fill_(0, index, 0)
