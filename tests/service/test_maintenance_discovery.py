"""Discovery beside a framework that takes the worker out by itself, and stores that complain."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from service.discovery import Discovery
from tests.doubles.endpoints import EndpointDouble, SlowEndpoint

if TYPE_CHECKING:
    from tests.doubles.bridge import LoopThread


def opened(endpoint: EndpointDouble) -> Discovery:
    """Of a worker that does not end."""
    discovery = Discovery(lambda: False, lambda: None)
    discovery.opened(endpoint)
    return discovery


def test_who_is_out_stays_out_without_asking(loop_thread: LoopThread) -> None:
    """Once is enough; after it has joined it is asked for again."""
    store = EndpointDouble([])

    async def play() -> None:
        discovery = opened(store)
        for _ in range(2):
            assert await discovery.stay_out()
        assert store.events == ["unregister"]
        await discovery.join()
        assert await discovery.stay_out()

    loop_thread.run(play())
    assert store.events == ["unregister", "register", "unregister"]


def test_who_was_taken_out_by_the_framework_stays_out_without_asking(loop_thread: LoopThread) -> None:
    """And comes back by a join of its own."""
    store = EndpointDouble([])

    async def play() -> None:
        discovery = opened(store)
        discovery.taken_out()
        assert not discovery.is_listed
        assert await discovery.stay_out()
        assert await discovery.join()
        assert discovery.is_listed

    loop_thread.run(play())
    assert store.events == ["register"]


def test_a_join_that_is_under_way_is_not_overlooked(loop_thread: LoopThread) -> None:
    """It is not listed yet and will be: who wishes to stay out has to ask."""
    store = SlowEndpoint([], 0.01)

    async def play() -> None:
        discovery = opened(store)
        discovery.taken_out()
        joining = asyncio.create_task(discovery.join())
        await store.asked.wait()
        assert await discovery.stay_out()
        await joining

    loop_thread.run(play())
    assert store.events == ["register", "unregister"]
    assert not store.is_listed
