"""Promises of the reader of TensorRT-LLM's statistics: one true state of all ranks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.engines.trtllm.figures.stats import EngineState, StatsReader
from protocols.steps import RankBlocks
from tests.actors.engines.trtllm.stats_telling import stats_row


def last(reader: StatsReader, *rows: object) -> EngineState:
    state = reader.read(rows)
    assert state is not None
    return state


def test_one_rank_tells_everything() -> None:
    """Without attention DP a row is the engine."""
    assert last(StatsReader(), stats_row(7)) == EngineState(
        ranks=(RankBlocks(rank=0, used=40, total=100, hit_rate=0.25),),
        iterations_seen=1,
    )


def test_blocks_of_ranks_are_added_up() -> None:
    """Each has a pool of its own."""
    reader = StatsReader(ranks=2)
    state = last(reader, stats_row(4), stats_row(4, rank=1, kvCacheStats__usedNumBlocks=7))
    assert [(blocks.rank, blocks.used) for blocks in state.ranks] == [(0, 40), (1, 7)]
    assert state.used_blocks == 47


def test_rows_of_ranks_may_come_apart() -> None:
    """A rank that says nothing for a while is as it was; one that has said nothing yet is not made up."""
    reader = StatsReader(ranks=3)
    assert [blocks.rank for blocks in last(reader, stats_row(1, rank=2)).ranks] == [2]
    state = last(reader, stats_row(1), stats_row(2), stats_row(3, kvCacheStats__usedNumBlocks=1))
    assert [(blocks.rank, blocks.used) for blocks in state.ranks] == [(0, 1), (2, 40)]
    assert state.iterations_seen == 4


def test_what_a_row_leaves_out_is_as_it_was() -> None:
    """Every key may be absent; the rank is 0 then."""
    reader = StatsReader()
    before = last(reader, stats_row(1))
    assert last(reader, {}) == EngineState(ranks=before.ranks, iterations_seen=2)
    assert last(StatsReader(), {}) == EngineState(iterations_seen=1)


def test_iterations_are_counted_even_when_their_numbers_start_anew() -> None:
    """Whoever watches for a hang sees that the engine goes on."""
    reader = StatsReader()
    seen = [last(reader, stats_row(number)).iterations_seen for number in (5, 6, 1, 1)]
    assert seen == [1, 2, 3, 4]


def test_no_rows_are_no_state() -> None:
    """Nothing happened, and nobody has to be told."""
    reader = StatsReader()
    assert reader.read([]) is None
    reader.read([stats_row()])
    assert reader.read([]) is None


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ({"kvCacheStats__cacheHitRate": float("nan")}, None),
        ({"kvCacheStats__cacheHitRate": 1.5}, None),
        ({"kvCacheStats__cacheHitRate": True}, None),
        ({"kvCacheStats__cacheHitRate": "0.5"}, None),
        ({"kvCacheStats__cacheHitRate": None}, None),
        ({"kvCacheStats__reusedBlocks": 0, "kvCacheStats__missedBlocks": 0}, None),
        ({"kvCacheStats__cacheHitRate": 1}, 1.0),
        ({"kvCacheStats__cacheHitRate": 0.0}, 0.0),
    ],
)
def test_a_hit_rate_that_is_not_known_is_none(told: dict[str, Any], kept: float | None) -> None:
    """Before the first look-up the engine says 0, which is another thing."""
    (blocks,) = last(StatsReader(), stats_row(**told)).ranks
    assert blocks.hit_rate == kept


@pytest.mark.parametrize("row", [None, 3, "row", [], stats_row(rank=2), stats_row(rank=-1)])
def test_what_is_no_row_of_ours_is_counted_and_skipped(row: object, caplog: pytest.LogCaptureFixture) -> None:
    """A rank that was not announced is none. The log has it once."""
    reader = StatsReader(ranks=2)
    assert reader.read([row]) is None
    assert [blocks.rank for blocks in last(reader, row, stats_row(3)).ranks] == [0]
    assert reader.malformed == 2
    assert [record.levelname for record in caplog.records] == ["WARNING"]


Odd: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers(-2, 4) | st.floats() | st.text(max_size=2) | st.just([])
)
Rows = st.lists(
    st.dictionaries(
        st.sampled_from(["iter", "numActiveRequests", "numQueuedRequests", "attentionDpRank", "odd"]), Odd
    )
    | st.fixed_dictionaries(
        {},
        optional={
            "kvCacheStats": st.dictionaries(st.sampled_from(["usedNumBlocks", "maxNumBlocks"]), Odd) | Odd,
            "inflightBatchingStats": st.dictionaries(st.just("numPausedRequests"), Odd) | Odd,
            "attentionDpRank": st.integers(0, 2),
        },
    )
    | Odd,
    max_size=10,
)


@given(rows=Rows)
def test_whatever_the_rows_are_the_state_makes_sense(rows: list[Any]) -> None:
    """Nothing is raised, no figure is negative, and every row is accounted for."""
    reader = StatsReader(ranks=2)
    state = reader.read(rows)
    if state is None:
        assert reader.malformed == len(rows)
        return
    assert state.iterations_seen + reader.malformed == len(rows)
    assert [blocks.rank for blocks in state.ranks] in ([], [0], [1], [0, 1])
    assert all(blocks.used >= 0 and blocks.total >= 0 for blocks in state.ranks)
