"""Aborts without a last word: a request that stays silent while others go on was dropped."""

from __future__ import annotations

import asyncio

import pytest

from actors.engines.trtllm.requests import unconfirmed
from actors.engines.trtllm.requests.unconfirmed import Unconfirmed
from protocols.steps import EngineId

pytestmark = pytest.mark.anyio

ME, OTHER, THIRD = EngineId(1), EngineId(2), EngineId(3)


@pytest.fixture
def anyio_backend() -> str:
    """As the library."""
    return "asyncio"


async def test_iterations_of_one_other_request_are_enough() -> None:
    """Results of several in one iteration are not."""
    dropped: list[EngineId] = []
    aborts = Unconfirmed(dropped.append)
    aborts.heard(OTHER)
    aborts.asked(ME)
    for _ in range(unconfirmed._ITERATIONS - 1):
        aborts.heard(OTHER)
        aborts.heard(THIRD)
    assert dropped == []
    aborts.heard(THIRD)
    assert dropped == [ME]
    aborts.heard(OTHER)
    assert dropped == [ME]


async def test_a_word_of_its_own_ends_the_wait() -> None:
    """The engine has it: it will say that it has ended it."""
    dropped: list[EngineId] = []
    aborts = Unconfirmed(dropped.append)
    aborts.asked(ME)
    aborts.heard(ME)
    for _ in range(2 * unconfirmed._ITERATIONS):
        aborts.heard(OTHER)
    assert dropped == []


async def test_where_nobody_says_anything_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """And once is enough; what is forgotten is not dropped."""
    monkeypatch.setattr(unconfirmed, "_MOST_S", 0.01)
    dropped: list[EngineId] = []
    done = asyncio.Event()

    def drop(engine_id: EngineId) -> None:
        dropped.append(engine_id)
        done.set()

    aborts = Unconfirmed(drop)
    # The other one's time would pass first.
    for engine_id in (OTHER, ME):
        aborts.asked(engine_id)
    aborts.forget(OTHER)
    await asyncio.wait_for(done.wait(), 5)
    assert dropped == [ME]
