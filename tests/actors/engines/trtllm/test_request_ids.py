"""Requests of two workers have ids that no other worker makes."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.engines.trtllm.request_ids import request_ids
from protocols.errors import EngineStartError


def of_rc21() -> Callable[..., int]:
    """A machine's number of 10 bits in front of a counter."""
    counter = count()

    def make(machine_id: int) -> int:
        assert machine_id in range(1 << 10)
        return machine_id << 10 | next(counter)

    return make


def of_rc22() -> Callable[..., int]:
    """A node's number of 8 bits and a process's of 6 in front of a counter."""
    counter = count()

    def make(node_id: int, process_id: int = 0) -> int:
        assert node_id in range(1 << 8)
        assert process_id in range(1 << 6)
        return (node_id << 6 | process_id) << 10 | next(counter)

    return make


BOTH = pytest.mark.parametrize("release", [of_rc21, of_rc22])


@BOTH
@given(worker_id=st.integers(0, 2**64 - 1))
def test_every_worker_id_makes_a_number_that_the_release_takes(
    release: Callable[[], Callable[..., int]], worker_id: int
) -> None:
    """The number of the machine is in range, and the same one for each request of the worker."""
    make_id = request_ids(release(), worker_id)

    assert len({make_id() >> 10 for _ in range(3)}) == 1


@BOTH
def test_an_id_is_made_once(release: Callable[[], Callable[..., int]]) -> None:
    """No two requests of a process share one."""
    make_id = request_ids(release())

    assert len({make_id() for _ in range(1000)}) == 1000


@pytest.mark.parametrize(("release", "apart"), [(of_rc21, 1021), (of_rc22, 16_381)])
def test_workers_in_a_row_have_numbers_of_their_own(release: Callable[[], Any], apart: int) -> None:
    """As many as the release has numbers for, and then again from the first."""
    numbers = [request_ids(release(), worker_id)() >> 10 for worker_id in range(apart + 1)]

    assert len(set(numbers)) == apart
    assert numbers[0] == numbers[-1]


@BOTH
def test_without_a_worker_id_the_number_is_the_systems_to_draw(
    release: Callable[[], Callable[..., int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers that start from one image with one seed get numbers of their own all the same."""
    drawn = iter((3, 4))
    monkeypatch.setattr(secrets, "randbelow", lambda _count: next(drawn))

    assert [request_ids(release())() >> 10 for _ in range(2)] == [3, 4]


@pytest.mark.parametrize("make", [None, lambda: 5, lambda rank: rank])
def test_a_release_that_makes_ids_in_another_way_stops_the_start(make: Callable[..., int] | None) -> None:
    """An id that is made wrongly would lead a decode worker to somebody else's answer."""
    with pytest.raises(EngineStartError, match="ids for requests"):
        request_ids(make)
