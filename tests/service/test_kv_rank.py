"""Promises about KV events of one rank: a router that hears them knows exactly what lies in the cache."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.steps import KvCleared, KvEvent, KvLost, KvMalformed, KvRemoved, KvStored
from service.kv_index import KvIndex
from service.kv_rank import RETRY_S, RankPublisher
from service.telemetry.repeats import RepeatLimiter
from tests.doubles.publishers import RouterDouble

BLOCK = 4
MOST = 64


class Desk:
    """One rank, its router, and a clock set by hand."""

    def __init__(self, most_blocks: int = MOST, *, is_open: bool = True, number: int = 0) -> None:
        self.now_s = 100.0
        self.counts = Counter[str]()
        self.router = RouterDouble(BLOCK)
        self.rank = RankPublisher(KvIndex(BLOCK, most_blocks), self._count, lambda: self.now_s, number)
        if is_open:
            self.rank.opened(self.router)

    def _count(self, result: str, count: int) -> None:
        self.counts[result] += count

    def tell(self, *events: KvEvent) -> None:
        """One step of the engine."""
        for event in events:
            self.rank.note(event)
        self.rank.publish()


def stored(*hashes: int, parent: int | None = None, salt: str | None = None, **changes: Any) -> KvStored:
    """Full blocks whose tokens follow from their hashes."""
    tokens = tuple((each * BLOCK + place) % 1000 for each in hashes for place in range(BLOCK))
    facts = {"block_hashes": hashes, "token_ids": tokens, "block_tokens": BLOCK, "parent_hash": parent}
    return KvStored(**{**facts, "cache_salt": salt, **changes})


def test_what_was_stored_is_told_as_the_framework_reads_it() -> None:
    """One call a step, signed hashes, and salt and adapter only where there are any."""
    desk = Desk()
    desk.tell(
        stored(1, 2**63 + 5), stored(3, parent=2**63 + 5, salt="a", adapter="x"), KvRemoved(block_hashes=(3,))
    )
    assert desk.router.batches == [
        [
            {
                "type": "stored",
                "token_ids": [4, 5, 6, 7, *[((2**63 + 5) * 4 + i) % 1000 for i in range(4)]],
                "num_block_tokens": [4, 4],
                "block_hashes": [1, -(2**63) + 5],
            },
            {
                "type": "stored",
                "token_ids": [12, 13, 14, 15],
                "num_block_tokens": [4],
                "block_hashes": [3],
                "parent_hash": -(2**63) + 5,
                "cache_salt": "a",
                "lora_name": "x",
            },
            {"type": "removed", "block_hashes": [3]},
        ]
    ]
    assert desk.counts == {"published": 3}


@pytest.mark.parametrize(
    "event",
    [
        stored(1, token_ids=(1, 2)),
        stored(1, token_ids=(1, 2, 3, 4, 5)),
        stored(1, block_tokens=5, token_ids=(1, 2, 3, 4, 5)),
        stored(-1),
        stored(2**64),
        stored(1, token_ids=(1, 2, 3, -4)),
        stored(1, token_ids=(1, 2, 3, 2**32)),
        stored(1, token_ids=(1, 2, 3, 4.0)),
        stored(1, 1),
        stored(1, parent=77),
        stored(1, parent=1),
        stored(block_hashes=(), token_ids=()),
    ],
)
def test_what_cannot_be_true_is_counted_and_not_told(event: KvStored) -> None:
    """Partial and oversized blocks, numbers out of range, unknown parents; the next event is told (S14)."""
    desk = Desk()
    desk.tell(event)
    assert (desk.router.batches, desk.counts) == ([], {"malformed": 1})
    desk.tell(stored(9))
    assert list(desk.router.blocks) == [9]


def test_the_removal_of_what_was_never_told_is_not_told() -> None:
    """No router is asked to remove a block that it cannot find."""
    desk = Desk()
    desk.tell(stored(13, token_ids=(1, 2)), KvRemoved(block_hashes=(13,)))
    assert desk.router.batches == []
    desk.tell(stored(12), KvRemoved(block_hashes=(13, 12)))
    assert desk.router.events[-1] == {"type": "removed", "block_hashes": [12]}


def test_no_more_blocks_are_kept_than_the_engine_has() -> None:
    """An engine that forgets to say what is gone costs no memory, and what is new is told all the same."""
    desk = Desk(most_blocks=4)
    for block_hash in range(100):
        desk.tell(stored(block_hash))
        assert block_hash in desk.router.blocks
        assert len(desk.router.blocks) <= 4
    assert desk.counts["malformed"] == 24
    # It goes on from a block that has to be forgotten with the others.
    desk.tell(stored(100, parent=99))
    assert not desk.router.blocks
    desk.tell(stored(101, parent=99), stored(102))
    assert list(desk.router.blocks) == [102]


def test_no_more_removals_are_remembered_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A publisher that is down for long: the oldest are forgotten, and counted; the rest is told later."""
    monkeypatch.setattr("service.kv_rank.MOST_GONE", 3)
    desk = Desk()
    desk.tell(*(stored(block_hash) for block_hash in range(6)))
    desk.router.mood = RuntimeError("no")
    for block_hash in range(5):
        desk.tell(KvRemoved(block_hashes=(block_hash,)))
    assert desk.counts["forgotten"] == 2
    desk.router.mood = None
    desk.now_s += RETRY_S
    desk.rank.publish()
    assert sorted(desk.router.blocks) == [0, 1, 5]


def test_what_came_before_the_framework_was_ready_is_told_then() -> None:
    """As it is by then: what is gone again is not mentioned."""
    desk = Desk(is_open=False)
    desk.tell(stored(1, 2), stored(3, parent=1))
    desk.tell(KvRemoved(block_hashes=(2,)))
    desk.rank.opened(desk.router)
    assert sorted(desk.router.blocks) == [1, 3]
    assert not any(event["type"] == "removed" for event in desk.router.events)


def test_a_publisher_that_raises_is_left_alone_for_a_while_and_then_told_everything() -> None:
    """Nothing is raised here; afterwards the router knows what is there and what is not."""
    desk = Desk()
    desk.tell(stored(1, 2))
    desk.router.mood = RuntimeError("no")
    desk.tell(KvRemoved(block_hashes=(2,)), stored(3, parent=1))
    desk.router.mood = None
    desk.tell(stored(4, parent=3))
    assert desk.counts == {"published": 1, "failed": 2}
    assert sorted(desk.router.blocks) == [1, 2]
    desk.now_s += RETRY_S
    desk.rank.publish()
    assert sorted(desk.router.blocks) == [1, 3, 4]


def test_what_never_came_and_what_made_no_sense_is_counted_and_not_told() -> None:
    """Nobody can say what it was: blocks that are known stay known."""
    desk = Desk()
    desk.tell(stored(1), KvLost(count=4), KvMalformed(count=2), KvLost(count=1))
    assert desk.counts == {"published": 1, "lost": 5, "malformed": 2}
    assert desk.rank.lost == 5
    assert list(desk.router.blocks) == [1]


def test_a_gap_is_said_once_a_minute_and_rank(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that loses events loses many."""
    monkeypatch.setattr("service.telemetry.logs._LIMITER", RepeatLimiter())
    for number in (0, 3):
        Desk(number=number).tell(*[KvLost(count=2)] * 50)
    assert len(caplog.records) == 2


def test_an_emptied_cache_is_told_block_by_block() -> None:
    """The framework has no word for it. What is stored afterwards begins anew."""
    desk = Desk()
    desk.tell(stored(1, 2**63 + 2), stored(3, parent=1), KvCleared(), stored(4))
    assert list(desk.router.blocks) == [4]
    desk.tell(KvRemoved(block_hashes=(1,)), stored(5, parent=1))
    assert desk.counts == {"published": 4, "malformed": 1}
    desk.tell(KvCleared(), KvCleared())
    assert not desk.router.blocks


def test_a_large_cache_is_emptied_in_messages_that_can_be_sent() -> None:
    """In order, and all of them."""
    desk = Desk(most_blocks=10_000)
    desk.tell(*(stored(number) for number in range(10_000)))
    desk.tell(KvCleared())
    assert not desk.router.blocks
    sizes = [len(event["block_hashes"]) for event in desk.router.events if event["type"] == "removed"]
    assert (sum(sizes), max(sizes)) == (10_000, 4096)


def test_a_cache_that_is_emptied_while_nobody_listens_is_not_mentioned() -> None:
    """Neither before the framework is ready, nor while its publisher is down."""
    desk = Desk(is_open=False)
    desk.tell(stored(1), KvCleared(), stored(2))
    desk.rank.opened(desk.router)
    assert [event["type"] for event in desk.router.events] == ["stored"]
    desk.router.mood = RuntimeError("no")
    desk.tell(KvCleared())
    desk.router.mood = None
    desk.now_s += RETRY_S
    desk.rank.publish()
    assert not desk.router.blocks


def test_after_a_time_away_everything_is_told_again() -> None:
    """Routers forget a worker that leaves discovery."""
    desk = Desk()
    desk.tell(stored(1, 2, 3), stored(4, parent=1))
    desk.router.forget()
    desk.rank.forgotten()
    assert sorted(desk.router.blocks) == [1, 2, 3, 4]


Acts = st.lists(
    st.one_of(
        st.tuples(st.just("store"), st.integers(0, 40), st.integers(1, 3)),
        st.tuples(st.just("evict"), st.integers(0, 40), st.integers(1, 4)),
        st.tuples(st.just("break"), st.just(0), st.just(0)),
        st.tuples(st.just("mend"), st.just(0), st.just(0)),
        st.tuples(st.just("wait"), st.just(0), st.just(0)),
        st.tuples(st.just("away"), st.just(0), st.just(0)),
        st.tuples(st.just("clear"), st.just(0), st.just(0)),
    ),
    max_size=40,
)


@given(acts=Acts, is_open=st.booleans())
def test_whatever_happens_the_router_ends_up_with_what_is_there(
    acts: list[tuple[str, int, int]], is_open: bool
) -> None:
    """Stores and evictions from the leaves, a publisher that breaks, a router that forgets, in any order."""
    desk = Desk(is_open=is_open)
    truth: dict[int, int | None] = {}
    number = 0
    for act, who, count in acts:
        match act:
            case "store":
                parents = [None, *truth]
                parent = parents[who % len(parents)]
                hashes = tuple(2**63 - 20 + number + place for place in range(count))
                number += count
                truth.update(zip(hashes, (parent, *hashes), strict=False))
                desk.tell(stored(*hashes, parent=parent))
            case "evict":
                gone: list[int] = []
                for _ in range(min(count, len(truth))):
                    leaves = [each for each in truth if each not in truth.values()]
                    gone.append(leaves[who % len(leaves)])
                    del truth[gone[-1]]
                desk.tell(*([KvRemoved(block_hashes=tuple(gone))] if gone else []))
            case "clear":
                truth.clear()
                desk.tell(KvCleared())
            case "break":
                desk.router.mood = RuntimeError("no")
            case "mend":
                desk.router.mood = None
            case "wait":
                desk.now_s += RETRY_S
                desk.rank.publish()
            case _:
                desk.router.forget()
                desk.rank.forgotten()
    desk.router.mood = None
    desk.now_s += RETRY_S
    desk.rank.opened(desk.router)
    assert {each % 2**64 for each in desk.router.blocks} == truth.keys()
