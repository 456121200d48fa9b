"""The block allocator: never twice, never lost, consecutive where it can be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.engines.torch.blocks import BlockAllocator
from protocols.errors import InternalError

# A positive number asks for that many blocks; a negative one releases the n-th holder.
actions = st.lists(st.integers(-5, 9).filter(bool), max_size=60)


def is_consecutive(blocks: list[int]) -> bool:
    return blocks == list(range(blocks[0], blocks[0] + len(blocks)))


@given(total=st.integers(1, 40), steps=actions)
def test_every_block_has_one_owner(total: int, steps: list[int]) -> None:
    """Whatever is asked for and given back, each block is free or has exactly one owner."""
    allocator = BlockAllocator(total)
    held: list[list[int]] = []
    for step in steps:
        if step > 0:
            blocks = allocator.allocate(step)
            free = total - sum(map(len, held))
            assert (blocks is None) == (step > free)
            held += [blocks] if blocks else []
        elif held:
            allocator.release(held.pop(step % len(held)))
        owned = [block for blocks in held for block in blocks]
        assert len(set(owned)) == len(owned) == allocator.used_blocks
        assert all(0 <= block < total for block in owned)


@given(counts=st.lists(st.integers(1, 4), min_size=1, max_size=8))
def test_sequences_that_grow_in_turn_stay_consecutive(counts: list[int]) -> None:
    """In a roomy pool sequences lie apart, so each can grow several times without a jump."""
    allocator = BlockAllocator(1024)
    sequences = [allocator.allocate(count) or [] for count in counts]
    for _ in range(8):
        for blocks in sequences:
            blocks.extend(allocator.allocate(1, after=blocks[-1]) or [])
    assert all(is_consecutive(blocks) for blocks in sequences)


@given(count=st.integers(1, 8), hole=st.integers(0, 8))
def test_a_run_is_found_where_there_is_one(count: int, hole: int) -> None:
    """A request that fits into one free stretch is never scattered."""
    allocator = BlockAllocator(24)
    taken = allocator.allocate(24) or []
    allocator.release(taken[3 : 3 + hole])
    allocator.release(taken[14:22])
    assert is_consecutive(allocator.allocate(count) or [])


def test_scattered_blocks_are_used_up() -> None:
    """When no stretch is long enough the blocks are taken from several."""
    allocator = BlockAllocator(10)
    taken = allocator.allocate(10) or []
    allocator.release(taken[::2])
    assert allocator.allocate(6) is None
    assert sorted(allocator.allocate(5) or []) == taken[::2]


def test_a_double_release_is_a_bug() -> None:
    """Giving a block back twice is found at once, before two sequences share it."""
    allocator = BlockAllocator(4)
    blocks = allocator.allocate(2) or []
    allocator.release(blocks)
    with pytest.raises(InternalError, match="released twice"):
        allocator.release(blocks)
