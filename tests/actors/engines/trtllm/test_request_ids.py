"""Requests of two workers have ids that no other worker makes."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable
from itertools import count

import pytest

from actors.engines.trtllm.roles.request_ids import request_ids
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


Release = Callable[[], Callable[..., int]]

BOTH = pytest.mark.parametrize("release", [of_rc21, of_rc22])


@BOTH
@pytest.mark.parametrize("draw", [lambda _count: 0, lambda count: count - 1], ids=["least", "most"])
def test_whatever_is_drawn_is_a_number_that_the_release_takes(
    release: Release, draw: Callable[[int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of the machine is in range, and the same one for each request of the worker."""
    monkeypatch.setattr(secrets, "randbelow", draw)
    make_id = request_ids(release())

    assert len({make_id() >> 10 for _ in range(3)}) == 1


@BOTH
def test_an_id_is_made_once(release: Release) -> None:
    """No two requests of a process share one."""
    make_id = request_ids(release())

    assert len({make_id() for _ in range(1000)}) == 1000


@BOTH
def test_two_workers_rarely_have_the_same_number(release: Release, monkeypatch: pytest.MonkeyPatch) -> None:
    """About once in a thousand pairs where the number has 10 bits, and less where it has 14."""
    monkeypatch.setattr(secrets, "randbelow", random.Random(1).randrange)

    def number() -> int:
        return request_ids(release())() >> 10

    assert sum(number() == number() for _ in range(2000)) < 8


@BOTH
def test_the_number_is_the_systems_to_draw(release: Release) -> None:
    """Workers that start from one image with one seed get numbers of their own all the same."""
    numbers = set[int]()
    for _ in range(20):
        random.seed(1)
        numbers.add(request_ids(release())() >> 10)

    assert len(numbers) > 1


@pytest.mark.parametrize("make", [None, lambda: 5, lambda rank: rank])
def test_a_release_that_makes_ids_in_another_way_stops_the_start(make: Callable[..., int] | None) -> None:
    """An id that is made wrongly would lead a decode worker to somebody else's answer."""
    with pytest.raises(EngineStartError, match="ids for requests"):
        request_ids(make)
