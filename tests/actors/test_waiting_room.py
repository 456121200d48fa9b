"""Promises of the waiting room: priority, then arrival, and nobody is passed for ever."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from actors.waiting_room import PASSES_ALLOWED, WaitingRoom
from protocols.messages import Resolved
from protocols.spec import GenerationSpec, StopRules
from protocols.steps import EngineId


def waiting(number: int, n: int = 1, priority: float = 0.0) -> Resolved:
    """A request that costs ``n`` sequences."""
    spec = GenerationSpec(prompt=(1,), stop=StopRules(max_tokens=1), n=n, priority=priority)
    return Resolved(EngineId(number), spec)


def filled(*requests: Resolved) -> WaitingRoom:
    room = WaitingRoom()
    for request in requests:
        room.add(request)
    return room


def called(room: WaitingRoom, free_sequences: int) -> int | None:
    request = room.next_fitting(free_sequences)
    return None if request is None else request.engine_id


def test_first_come_first_served() -> None:
    """Equals leave in the order they came."""
    room = filled(waiting(1), waiting(2), waiting(3))
    assert [called(room, 1) for _ in range(4)] == [1, 2, 3, None]


def test_higher_priority_goes_first() -> None:
    """Higher is first, everywhere; among equals the order of arrival holds."""
    room = filled(waiting(1), waiting(2, priority=5), waiting(3, priority=-1), waiting(4, priority=5))
    assert [called(room, 1) for _ in range(4)] == [2, 4, 1, 3]


def test_a_smaller_one_may_pass_one_that_does_not_fit() -> None:
    """A slot is not kept empty for a request that could not use it."""
    room = filled(waiting(1, n=4), waiting(2))
    assert called(room, 2) == 2
    assert called(room, 4) == 1


def test_nobody_is_called_who_does_not_fit() -> None:
    """Capacity is counted in sequences."""
    room = filled(waiting(1, n=4), waiting(2, n=3))
    assert called(room, 2) is None
    assert len(room) == 2


def test_a_large_one_is_not_passed_for_ever() -> None:
    """After so many passes the slots are kept free until it fits."""
    room = filled(waiting(0, n=4), *(waiting(number) for number in range(1, PASSES_ALLOWED + 10)))
    passed = 0
    while called(room, 2) is not None:
        passed += 1
    assert passed == PASSES_ALLOWED
    assert called(room, 4) == 0
    assert called(room, 2) == PASSES_ALLOWED + 1


def test_who_leaves_is_not_called() -> None:
    """A discarded request is gone; discarding it again finds nobody."""
    room = filled(waiting(1), waiting(2))
    assert room.discard(EngineId(1))
    assert not room.discard(EngineId(1))
    assert called(room, 1) == 2
    assert len(room) == 0


def test_who_was_called_is_no_longer_there() -> None:
    """Calling somebody takes him out."""
    room = filled(waiting(1))
    assert called(room, 1) == 1
    assert not room.discard(EngineId(1))


@given(
    requests=st.lists(st.tuples(st.integers(1, 4), st.sampled_from([0.0, 1.0, -2.5])), max_size=120),
    frees=st.lists(st.integers(0, 4), max_size=200),
)
def test_everybody_is_called_once_in_order_among_equals(
    requests: list[tuple[int, float]], frees: list[int]
) -> None:
    """Nobody is lost or called twice; of two alike the older goes first; only those that fit are called."""
    room = filled(*(waiting(number, n, priority) for number, (n, priority) in enumerate(requests)))
    order: list[int] = []
    for free in [*frees, *[4] * len(requests)]:
        number = called(room, free)
        if number is not None:
            assert requests[number][0] <= free
            order.append(number)
    assert sorted(order) == list(range(len(requests)))
    for kind in set(requests):
        alike = [number for number in order if requests[number] == kind]
        assert alike == sorted(alike)
