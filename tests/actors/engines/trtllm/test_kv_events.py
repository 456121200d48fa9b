"""Promises of the reader of TensorRT-LLM's KV events: routers hear what is true of full blocks of text."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import count, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.engines.trtllm.figures.kv_events import KvEventReader
from protocols.steps import KvCleared, KvLost, KvMalformed, KvRemoved, KvStored
from tests.actors.engines.trtllm.kv_telling import BLOCK, StrictRouter, Telling, block


def tokens(*names: int) -> tuple[int, ...]:
    return tuple((name * BLOCK + place) % 1000 for name in names for place in range(BLOCK))


def stored(*names: int, parent: int | None = None, rank: int = 0, **changes: Any) -> KvStored:
    """What the driver says of full blocks."""
    return KvStored(
        block_hashes=names,
        token_ids=tokens(*names),
        block_tokens=BLOCK,
        parent_hash=parent,
        rank=rank,
        **changes,
    )


def removed(*names: int, rank: int = 0) -> KvRemoved:
    return KvRemoved(block_hashes=names, rank=rank)


def test_a_story_with_every_trap_is_read_as_it_happened() -> None:
    """Partial blocks, ranks that share a hash, a gap, nonsense, a block that is too large (S14)."""
    first, second = Telling(rank=0), Telling(rank=1)
    rows: list[object] = [
        first.stored(11, 12, block(13, size=2)),
        second.stored(13),
        second.removed(13),
        first.removed(13, 12),
    ]
    first.lose(4)
    rows += [
        first.stored(14),
        {"event_id": "x", "data": 3},
        first.stored(block(15, size=5)),
        first.stored(16),
    ]
    assert KvEventReader(BLOCK, ranks=2).read(rows) == [
        stored(11, 12),
        stored(13, rank=1),
        removed(13, rank=1),
        removed(12),
        KvLost(count=4),
        stored(14),
        stored(16),
        KvMalformed(count=2),
    ]


def test_a_chain_goes_on_over_several_events_and_reads() -> None:
    """Each piece says behind which block it comes."""
    engine, reader = Telling(), KvEventReader(BLOCK)
    assert reader.read([engine.created(), engine.stored(1)]) == [stored(1)]
    assert reader.read([engine.stored(2, 3, parent=1)]) == [stored(2, 3, parent=1)]
    assert reader.read([]) == []


@pytest.mark.parametrize(
    ("told", "kept"), [(2**64 - 1, 2**64 - 1), (2**63, 2**63), (-1, 2**64 - 1), (-(2**63), 2**63), (0, 0)]
)
def test_hashes_are_unsigned_whatever_the_serialiser_makes_of_them(told: int, kept: int) -> None:
    """All 64 bits are kept; a removal finds them in the other form as well."""
    engine, reader = Telling(), KvEventReader(BLOCK)
    (event,) = reader.read([engine.stored(block(told, tokens=block(7)["tokens"]))])
    assert isinstance(event, KvStored)
    assert event.block_hashes == (kept,)
    assert reader.read([engine.removed(kept)]) == [removed(kept)]


def test_hashes_that_are_no_numbers_are_refused_with_one_reason(caplog: pytest.LogCaptureFixture) -> None:
    """KV cache manager V2 gives SHA-256 in hexadecimal unless it is told otherwise; the reason says how."""
    engine, reader = Telling(), KvEventReader(BLOCK)
    rows = [engine.stored(block("a" * 64)), engine.removed("a" * 64), engine.stored(block(2**64))]
    assert reader.read(rows) == [KvMalformed(count=3)]
    assert reader.read([engine.stored(1)]) == [stored(1)]
    assert len(caplog.records) == 1
    assert "v2_sha256_64" in caplog.text
    assert "aaaa" not in caplog.text


@pytest.mark.parametrize(
    "hidden",
    [
        block(2, size=3),
        block(2, size=0),
        block(2, mm_keys=[{"type": "mm_key", "hash": "0" * 64, "start_offset": 0}]),
        block(2, tokens=[{"token_id": 1, "token_extra_id": 77}] * BLOCK),
        block(None),
    ],
    ids=["partial", "empty", "multimodal", "extra ids", "without a hash"],
)
def test_a_chain_is_told_as_far_as_tokens_alone_say_what_it_is(hidden: dict[str, Any]) -> None:
    """What comes behind such a block is no more told than the block, and neither are their ends."""
    engine, reader = Telling(), KvEventReader(BLOCK)
    assert reader.read([engine.stored(1, hidden, 3)]) == [stored(1)]
    assert reader.read([engine.stored(4, parent=3), engine.removed(4, 3, 2, 1)]) == [removed(1)]


def test_a_block_is_told_once_it_is_full() -> None:
    """That its first part was not told is forgotten with it."""
    engine, reader = Telling(), KvEventReader(BLOCK)
    assert reader.read([engine.stored(block(1, size=2)), engine.removed(1)]) == []
    assert reader.read([engine.stored(1), engine.removed(1)]) == [stored(1), removed(1)]


def test_a_removal_is_told_once_and_of_what_was_told() -> None:
    """Names that come twice, or that nobody heard of, are left out."""
    engine, reader = Telling(), KvEventReader(BLOCK)
    rows = [engine.stored(1, 2), engine.removed(2, 9, 2), engine.removed(2), engine.removed()]
    assert reader.read(rows) == [stored(1, 2), removed(2)]


def test_salt_and_adapter_are_carried() -> None:
    """A prompt with a salt, or of an adapter, shares blocks with its like only."""
    engine, reader = Telling(), KvEventReader(BLOCK)
    salted = engine.stored(block(1, cache_salt="tenant"))
    assert reader.read([salted, engine.stored(2, lora_name="poet")]) == [
        stored(1, cache_salt="tenant"),
        stored(2, adapter="poet"),
    ]


def test_only_the_largest_window_counts() -> None:
    """The others tell of the same hashes, and forget them while it still has them."""
    engine, reader = Telling(), KvEventReader(BLOCK)
    rows = [
        engine.created(window=128),
        engine.created(window=4096),
        engine.stored(1, window=128),
        engine.stored(1, window=4096),
        engine.removed(1, window=128),
        engine.removed(1, window=4096),
    ]
    assert reader.read(rows) == [stored(1), removed(1)]


def test_a_larger_window_that_comes_late_corrects_what_was_told() -> None:
    """Its announcement was lost: what was told of the smaller one is taken back."""
    engine, reader = Telling(), KvEventReader(BLOCK)
    rows = [engine.stored(1, window=128), engine.stored(1, window=4096), engine.removed(1, window=128)]
    assert reader.read(rows) == [stored(1), KvCleared(), stored(1)]


def test_an_engine_without_windows_is_believed() -> None:
    """Not every release tells them."""
    engine, reader = Telling(window=None), KvEventReader(BLOCK)
    assert reader.read([engine.created(), engine.stored(1)]) == [stored(1)]


def test_a_move_to_another_memory_level_changes_nothing() -> None:
    """A block in the host's memory is still found; only its removal takes it away."""
    engine, reader = Telling(), KvEventReader(BLOCK)
    assert reader.read([engine.stored(1), engine.updated(1)]) == [stored(1)]
    assert reader.read([engine.updated(1), engine.removed(1)]) == [removed(1)]


def test_gaps_count_in_their_rank_only_and_late_events_are_none() -> None:
    """Ids are consecutive in a rank. An event that was passed over was counted then."""
    first, second = Telling(rank=0), Telling(rank=1)
    reader = KvEventReader(BLOCK, ranks=2)
    late = second.stored(5)
    second.lose(2)
    assert reader.read([first.stored(1), second.stored(1), first.stored(2)]) == [
        stored(1),
        stored(1, rank=1),
        stored(2),
    ]
    second.lose(3)
    assert reader.read([second.stored(2), late]) == [
        KvLost(count=3, rank=1),
        stored(2, rank=1),
        KvMalformed(count=1, rank=1),
    ]


def test_a_cache_that_is_made_anew_starts_from_nothing() -> None:
    """Its events are numbered from the beginning, and the first says that it was created."""
    old, new = Telling(), Telling(window=64)
    reader = KvEventReader(BLOCK)
    reader.read([old.created(), old.stored(1), old.stored(2)])
    assert reader.read([new.created(), new.stored(1), new.removed(2)]) == [KvCleared(), stored(1)]


def test_a_cache_that_was_emptied_without_a_word_is_told() -> None:
    """The driver knows: it put the engine to sleep. Of what lay there nothing is heard any more."""
    engine, reader = Telling(rank=1), KvEventReader(BLOCK, ranks=2)
    reader.read([engine.stored(1)])
    reader.cleared()
    assert reader.read([]) == [KvCleared(rank=0), KvCleared(rank=1)]
    assert reader.read([engine.removed(1), engine.stored(2, parent=1), engine.stored(1)]) == [
        stored(1, rank=1)
    ]


def test_a_rank_that_nobody_hears_any_more_begins_anew() -> None:
    """Routers were told to forget it: nothing goes on from what they knew, and of that no end is told."""
    engine, reader = Telling(), KvEventReader(BLOCK)
    reader.read([engine.stored(1)])
    reader.forgotten()
    assert reader.read([engine.stored(2, parent=1), engine.removed(1), engine.stored(3)]) == [
        KvCleared(),
        stored(3),
    ]
    assert reader.read([]) == []


def test_no_more_is_remembered_than_the_bound() -> None:
    """An engine that forgets to say what is gone costs no memory, and is heard all the same."""
    engine, reader = Telling(), KvEventReader(BLOCK, most_blocks=2)
    assert reader.read([engine.stored(1, 2), engine.stored(1, 2), engine.stored(3), engine.stored(4, 5)]) == [
        stored(1, 2),
        stored(1, 2),
        KvCleared(),
        stored(4, 5),
        KvMalformed(count=1),
    ]


def test_lost_removals_silence_no_rank_for_good() -> None:
    """However often it comes to the bound: routers know less for a while, and new chains are told."""
    engines = [Telling(rank=0), Telling(rank=1)]
    reader, router = KvEventReader(BLOCK, ranks=2, most_blocks=4), StrictRouter(BLOCK)
    reader.read([engines[1].stored(7)])
    malformed = 0
    for name in range(100):
        for event in reader.read([engines[0].stored(name)]):
            assert event.rank == 0
            router.hear(event)
            malformed += event.count if isinstance(event, KvMalformed) else 0
        assert len(router.names) <= 4
    assert malformed == 20
    assert reader.read([engines[1].stored(8, parent=7)]) == [stored(8, parent=7, rank=1)]


@pytest.mark.parametrize(
    "row",
    [
        None,
        [],
        {},
        {"event_id": 0},
        {"event_id": 0, "data": {}},
        {"event_id": 0, "data": {"type": "all_is_well"}},
        {"event_id": True, "data": {"type": "removed", "block_hashes": []}},
        {"event_id": -1, "data": {"type": "removed", "block_hashes": []}},
        {"event_id": 0, "attention_dp_rank": 1, "data": {"type": "removed", "block_hashes": []}},
        {"event_id": 0, "attention_dp_rank": -1, "data": {"type": "removed", "block_hashes": []}},
        {"event_id": 0, "window_size": "all", "data": {"type": "removed", "block_hashes": []}},
        {"event_id": 0, "data": {"type": "removed"}},
        {"event_id": 0, "data": {"type": "removed", "block_hashes": [None]}},
        {"event_id": 0, "data": {"type": "removed", "block_hashes": [1.0]}},
        {"event_id": 0, "data": {"type": "stored", "blocks": "12"}},
        {"event_id": 0, "data": {"type": "stored", "blocks": [3]}},
        {"event_id": 0, "data": {"type": "stored", "blocks": [block(1, tokens=None)]}},
        {"event_id": 0, "data": {"type": "stored", "blocks": [block(1, tokens=[1, 2, 3, 4])]}},
        {"event_id": 0, "data": {"type": "stored", "blocks": [block(1, tokens=[{"token_id": -1}] * 4)]}},
        {"event_id": 0, "data": {"type": "stored", "blocks": [block(1, tokens=[{"token_id": 2**32}] * 4)]}},
        {"event_id": 0, "data": {"type": "stored", "blocks": [block(1, tokens=[{"token_id": True}] * 4)]}},
        {"event_id": 0, "data": {"type": "stored", "blocks": [block(1, cache_salt=5)]}},
        {"event_id": 0, "data": {"type": "stored", "blocks": [block(1), block(2, cache_salt="a")]}},
        {"event_id": 0, "data": {"type": "stored", "blocks": [block(1), block(1)]}},
        {"event_id": 0, "data": {"type": "stored", "blocks": [block(1)], "lora_name": 7}},
    ],
)
def test_a_row_that_makes_no_sense_is_counted_and_skipped(row: object) -> None:
    """The next one is read as if nothing had been."""
    reader = KvEventReader(BLOCK)
    engine = Telling(window=None)
    engine.lose(1)
    assert reader.read([row, engine.stored(9)]) == [stored(9), KvMalformed(count=1)]


def mostly(usual: st.SearchStrategy[Any], odd: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """One in sixteen is odd: enough to meet all kinds, few enough that a story is told."""
    return st.integers(0, 15).flatmap(lambda dice: odd if dice == 15 else usual)


Json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
Names = mostly(st.integers(0, 5), st.sampled_from([2**63, 2**64 - 1, -5, 2**64, "ab", None]))
Blocks = st.builds(
    block,
    Names,
    mostly(st.just(BLOCK), st.integers(0, BLOCK + 1)),
    cache_salt=mostly(st.none(), st.just("a")),
    mm_keys=mostly(st.just([]), st.just([{"type": "mm_key"}])),
)
Stored = st.fixed_dictionaries(
    {
        "type": st.just("stored"),
        "parent_hash": st.one_of(st.none(), Names),
        "blocks": st.lists(Blocks, min_size=1, max_size=3),
    }
)
Removed = st.fixed_dictionaries({"type": st.just("removed"), "block_hashes": st.lists(Names, max_size=4)})
Other = st.fixed_dictionaries({"type": st.sampled_from(["created", "updated", "odd"])})
Row = st.fixed_dictionaries(
    {
        "data": mostly(st.one_of(Stored, Removed), st.one_of(Other, Json)),
        "step": mostly(st.just(0), st.integers(-3, 3)),
        "attention_dp_rank": mostly(st.integers(0, 1), st.just(2) | Json),
        "window_size": mostly(st.just(64), st.sampled_from([32, 128])),
    }
)
Rows = st.lists(mostly(Row, Json), min_size=5, max_size=25)


@given(rows=Rows, cuts=st.lists(st.integers(0, 25), max_size=3))
def test_whatever_an_engine_says_routers_are_told_what_can_be(rows: list[Any], cuts: list[int]) -> None:
    """Any rows, in any pieces: nothing is raised, and every rank's router could follow."""
    reader = KvEventReader(BLOCK, ranks=2)
    routers = [StrictRouter(BLOCK), StrictRouter(BLOCK)]
    ids = defaultdict[str, "count[int]"](lambda: count(5))
    for row in rows:
        if isinstance(row, dict) and "data" in row:
            row["event_id"] = next(ids[repr(row["attention_dp_rank"])]) + row.pop("step")
    edges = [0, *sorted(cuts), len(rows)]
    for begin, end in pairwise(edges):
        for event in reader.read(rows[begin:end]):
            routers[event.rank].hear(event)


def test_rows_may_be_json_that_was_read_back() -> None:
    """They come out of another process."""
    rows = json.loads(json.dumps([Telling(rank=0).stored(2**64 - 3, 7)]))
    (event,) = KvEventReader(BLOCK).read(rows)
    assert isinstance(event, KvStored)
    assert event.block_hashes == (2**64 - 3, 7)
