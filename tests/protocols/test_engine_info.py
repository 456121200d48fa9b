"""What follows from what an engine says at its start."""

from __future__ import annotations

import pytest

from protocols.engine import EngineInfo


def info(total_blocks: int | None, ranks: int = 1) -> EngineInfo:
    return EngineInfo(
        model="m",
        context_length=8,
        max_num_seqs=1,
        vocab_size=9,
        total_blocks=total_blocks,
        data_parallel_size=ranks,
    )


@pytest.mark.parametrize(("of_rank", "ranks", "of_all"), [(None, 2, None), (50, 1, 50), (50, 3, 150)])
def test_each_rank_has_a_pool_of_its_own(of_rank: int | None, ranks: int, of_all: int | None) -> None:
    """What a step tells of all ranks is compared with all pools."""
    assert info(of_rank, ranks).all_blocks == of_all


@pytest.mark.parametrize(
    ("total", "known"), [(None, 1 << 20), (16, 128), (1 << 18, 1 << 20), (1 << 22, 1 << 22)]
)
def test_books_of_blocks_are_bounded_and_hold_the_whole_pool(total: int | None, known: int) -> None:
    """Some blocks lie elsewhere, of some the end is not told; of other ranks there are other books."""
    assert info(total, ranks=2).most_known_blocks == known
