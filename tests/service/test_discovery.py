"""Leaving and joining discovery: whatever the store could not do at once is done later, or never."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from protocols.bounds import Bound
from service import discovery
from service.discovery import MOST_HANGING, Discovery
from tests.doubles.bridge import LOOK_S, PATIENCE_S
from tests.doubles.endpoints import EndpointDouble, HangingEndpoint, MoodyEndpoint, SlowEndpoint
from tests.doubles.listeners import RecordingTelemetry

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.doubles.bridge import LoopThread


class Office:
    """One discovery before a store, and a clock that runs fast."""

    def __init__(self, loop: LoopThread, endpoint: EndpointDouble) -> None:
        self.loop = loop
        self.is_over = False
        self.joined = 0
        self.told = RecordingTelemetry()
        self.discovery = loop.call(
            lambda: Discovery(lambda: self.is_over, self._joined, self.told.bound_reached)
        )
        loop.call(lambda: self.discovery.opened(endpoint))

    def _joined(self) -> None:
        self.joined += 1

    def leave(self) -> bool:
        return self.loop.run(self.discovery.leave())

    def join(self) -> bool:
        return self.loop.run(self.discovery.join())

    def until(self, is_true: Callable[[], bool]) -> None:
        """Wait for the loop's side, with the patience of the bridge."""
        gives_up_s = time.monotonic() + PATIENCE_S
        while not self.loop.call(is_true):
            assert time.monotonic() < gives_up_s, "what the test waits for never came"
            time.sleep(LOOK_S)

    def settled(self) -> bool:
        """Whether nobody asks any more."""
        following = self.discovery._following
        return following is None or following.done()


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "STORE_S", 0.05)
    monkeypatch.setattr(discovery, "RETRY_S", 0.005)


def test_a_worker_that_serves_again_comes_back_as_soon_as_the_store_does(loop_thread: LoopThread) -> None:
    """Resumed while the store was down: unlisted it would look alive and get no request for ever."""
    store = MoodyEndpoint([])
    office = Office(loop_thread, store)
    assert office.leave()
    store.is_down = True
    assert not office.join()
    office.until(lambda: len(store.events) >= 4)
    assert not office.discovery.is_listed
    assert office.joined == 0
    store.is_down = False
    office.until(lambda: office.discovery.is_listed and office.settled())
    assert store.is_listed
    assert office.joined == 1


def test_a_drained_worker_leaves_as_soon_as_the_store_is_back(loop_thread: LoopThread) -> None:
    """Listed it would be asked, and have to send everybody away."""
    store = MoodyEndpoint([])
    office = Office(loop_thread, store)
    store.is_down = True
    assert not office.leave()
    store.is_down = False
    office.until(lambda: not office.discovery.is_listed and office.settled())
    assert not store.is_listed


def test_only_the_last_wish_is_asked_for_again(loop_thread: LoopThread) -> None:
    """Drained and resumed while the store was down: it stays, and never leaves afterwards."""
    store = MoodyEndpoint([])
    office = Office(loop_thread, store)
    store.is_down = True
    assert not office.leave()
    assert not office.join()
    seen = len(store.events)
    office.until(lambda: len(store.events) >= seen + 3)
    assert set(store.events[seen + 1 :]) == {"register"}
    store.is_down = False
    office.until(office.settled)
    assert store.is_listed
    assert office.discovery.is_listed


def test_a_worker_that_ends_is_not_listed_again(loop_thread: LoopThread) -> None:
    """The framework takes it out for good; an old wish must not undo that."""
    store = MoodyEndpoint([])
    office = Office(loop_thread, store)
    assert office.leave()
    store.is_down = True
    assert not office.join()
    office.is_over = True
    office.until(office.settled)
    store.is_down = False
    assert not store.is_listed
    assert not office.discovery.is_listed


def test_a_leave_that_comes_through_late_does_not_outlive_the_resume(loop_thread: LoopThread) -> None:
    """It hung, the worker was resumed, and then it was done after all: the worker is listed once more."""
    store = HangingEndpoint([])
    office = Office(loop_thread, store)
    assert not office.leave()
    assert office.join()
    assert store.is_listed
    loop_thread.call(store.let_return)
    office.until(office.settled)
    assert store.events == ["unregister", "register", "register"]
    assert store.is_listed


def test_a_store_that_never_answers_is_asked_so_often_and_no_more(loop_thread: LoopThread) -> None:
    """Every answer that did not come in time is counted; beyond a number of them nobody is asked."""
    store = HangingEndpoint([])
    office = Office(loop_thread, store)
    for _ in range(MOST_HANGING + 2):
        assert not office.leave()
    assert store.events == ["unregister"] * MOST_HANGING
    counted = office.told.bounds[Bound.DISCOVERY]
    assert counted > MOST_HANGING
    loop_thread.call(store.let_return)
    office.until(lambda: not office.discovery.is_listed and office.settled())
    assert office.leave()
    assert office.told.bounds == {Bound.DISCOVERY: counted}


class ForgetfulEndpoint(EndpointDouble):
    """A store that never answers the first call, and all the others."""

    async def unregister_endpoint_instance(self) -> None:
        if "unregister" not in self.events:
            self.events.append("unregister")
            await asyncio.Event().wait()
        await super().unregister_endpoint_instance()


def test_a_call_that_never_returns_does_not_end_the_asking(loop_thread: LoopThread) -> None:
    """The drained worker leaves with the next call, and nobody asks for more."""
    store = ForgetfulEndpoint([])
    office = Office(loop_thread, store)
    assert not office.leave()
    office.until(lambda: not office.discovery.is_listed and office.settled())
    assert not store.is_listed
    assert store.events == ["unregister"] * 2


def test_all_who_leave_at_once_share_one_call(
    loop_thread: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many drain by hand, whoever comes last waits for one answer's time and not for theirs."""
    monkeypatch.setattr(discovery, "RETRY_S", PATIENCE_S)
    store = HangingEndpoint([])
    office = Office(loop_thread, store)

    async def leave_together() -> list[bool]:
        first = asyncio.create_task(office.discovery.leave())
        # A store tells nobody that it was called.
        while not store.events:  # noqa: ASYNC110
            await asyncio.sleep(0)
        return await asyncio.gather(first, *(office.discovery.leave() for _ in range(MOST_HANGING)))

    assert not any(loop_thread.run(leave_together()))
    assert store.events == ["unregister"]
    assert office.told.bounds == {Bound.DISCOVERY: 1}
    loop_thread.call(store.let_return)


@pytest.mark.parametrize("turn_s", [0.002, 0.022], ids=["waits its turn", "on its way"])
def test_a_join_that_is_late_does_not_outlive_the_signal(
    loop_thread: LoopThread, monkeypatch: pytest.MonkeyPatch, turn_s: float
) -> None:
    """Drained, resumed, and then the framework takes the worker out: it stays out, whatever was under way."""
    monkeypatch.setattr(discovery, "STORE_S", PATIENCE_S)
    store = SlowEndpoint([], 0.015)
    office = Office(loop_thread, store)

    async def play() -> None:
        leaving = asyncio.create_task(office.discovery.leave())
        await asyncio.sleep(0)
        joining = asyncio.create_task(office.discovery.join())
        await asyncio.sleep(turn_s)
        office.is_over = True
        await EndpointDouble.unregister_endpoint_instance(store)
        await asyncio.gather(leaving, joining)

    loop_thread.run(play())
    office.until(lambda: office.settled() and not office.discovery.is_listed)
    assert not store.is_listed
    assert office.joined == 0


def test_a_wish_that_was_overtaken_while_it_waited_is_not_asked_for(loop_thread: LoopThread) -> None:
    """Drained, and while the store thinks it over resumed and drained; or resumed, and the end comes."""
    store = SlowEndpoint([], 0.015)
    office = Office(loop_thread, store)

    async def play(*, is_ending: bool) -> None:
        store.asked.clear()
        calls = [asyncio.create_task(office.discovery.leave())]
        await store.asked.wait()
        calls.append(asyncio.create_task(office.discovery.join()))
        for _ in range(10):
            # Until it stands in line for the store.
            await asyncio.sleep(0)
        if is_ending:
            office.is_over = True
        else:
            calls.append(asyncio.create_task(office.discovery.leave()))
        await asyncio.gather(*calls)

    for is_ending in (False, True):
        loop_thread.run(play(is_ending=is_ending))
        office.until(office.settled)
    assert "register" not in store.events
    assert not store.is_listed


class HangingJoin(EndpointDouble):
    """A store that lists the worker when the test lets it."""

    def __init__(self, events: list[str]) -> None:
        super().__init__(events)
        self.may_return = asyncio.Event()

    async def register_endpoint_instance(self) -> None:
        await self.may_return.wait()
        await super().register_endpoint_instance()


def test_a_join_that_hung_until_the_end_is_undone(loop_thread: LoopThread) -> None:
    """It came through when nobody waited for it any more, and after the framework had left."""
    store = HangingJoin([])
    office = Office(loop_thread, store)
    assert office.leave()
    assert not office.join()
    office.is_over = True
    office.until(office.settled)
    loop_thread.call(store.may_return.set)
    office.until(lambda: store.events[-1] == "unregister" and office.settled())
    assert not store.is_listed
    assert not office.discovery.is_listed
