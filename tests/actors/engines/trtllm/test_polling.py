"""Promises of the thread that polls: in order, bounded, never silent about its end."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from actors.engines.trtllm.figures.polling import Hearing, PollPace, PollThread
from tests.doubles.threads import join_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NAME = "poll-double"
# Pauses are not what is tested: none is ever waited for but the patience of the tests themselves.
EAGER = PollPace(rest_s=0.0, idle_s=0.0, failed_s=0.0, silent_s=0.0, most_failures=3, undelivered=2)
PATIENCE_S = 10.0


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, object]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Whatever a test does with its thread, it ends."""
    yield
    join_threads(NAME)


pytestmark = pytest.mark.anyio


class Source:
    """An engine that answers polls from a list, then as its last answer says, for ever.

    An exception in the list is raised. polls: how often it was asked.
    """

    def __init__(self, *answers: list[int] | BaseException) -> None:
        self._answers = list(answers)
        self.polls = 0

    def poll(self) -> list[int]:
        self.polls += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer


class Gate:
    """A poll that blocks until somebody opens it."""

    def __init__(self) -> None:
        self.is_entered = threading.Event()
        self._is_open = threading.Event()

    def poll(self) -> list[int]:
        self.is_entered.set()
        self._is_open.wait(PATIENCE_S)
        return [1]

    def open(self) -> None:
        self._is_open.set()


class Desk:
    """The loop's side: what came, what became of the asking, and a way to wait for either."""

    def __init__(
        self, poll: Callable[[], list[int]], pace: PollPace = EAGER, *, is_full: bool = False
    ) -> None:
        self.batches: list[list[int]] = []
        self.said: list[tuple[Hearing, BaseException | None]] = []
        self._is_full = is_full
        self._news = asyncio.Event()
        self.on_news: Callable[[], None] = lambda: None
        self.thread = PollThread(NAME, poll, self._on_batch, self._on_hearing, pace)

    @property
    def deaths(self) -> list[BaseException | None]:
        return [cause for hearing, cause in self.said if hearing is Hearing.DEAD]

    def _on_batch(self, batch: list[int]) -> None:
        if self._is_full:
            raise LookupError("no place for a batch")
        self.batches.append(batch)
        self.on_news()
        self._news.set()

    def _on_hearing(self, hearing: Hearing, cause: BaseException | None) -> None:
        self.said.append((hearing, cause))
        self._news.set()

    async def until(self, is_so: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():
                self._news.clear()
                await self._news.wait()


def hold_the_loop(until: Callable[[], bool]) -> None:
    """Called in the loop, so that it does nothing else meanwhile."""
    pause = threading.Event()
    while not until():
        pause.wait(0.001)


async def test_batches_come_in_order_and_nothings_do_not_come() -> None:
    """What the engine has not got yet is no batch."""
    desk = Desk(Source([1], [], [2, 3], [], [4], []).poll)
    desk.thread.start()
    await desk.until(lambda: len(desk.batches) == 3)
    assert await desk.thread.stop()
    assert desk.batches == [[1], [2, 3], [4]]
    assert desk.deaths == []


async def test_a_poll_that_raises_is_tried_again_and_counted() -> None:
    """A call over to the engine's process may fail now and then; only failures in a row are silence."""
    hiccup = ConnectionError("the engine is busy")
    desk = Desk(Source([1], hiccup, hiccup, [2], hiccup, hiccup, [3], []).poll)
    desk.thread.start()
    await desk.until(lambda: len(desk.batches) == 3)
    assert await desk.thread.stop()
    assert (desk.thread.failures, desk.said) == (4, [])


async def test_silence_is_told_once_and_so_is_its_end() -> None:
    """Too many failures in a row: the engine may have been busy, so it is asked on, and heard again."""
    cause = ConnectionError("the engine is busy")
    silence = [cause] * (4 * EAGER.most_failures)
    source = Source(*silence, [1], *silence, [], [2], [])
    desk = Desk(source.poll)
    desk.thread.start()
    await desk.until(lambda: len(desk.batches) == 2)
    assert await desk.thread.stop()
    assert desk.said == [(Hearing.SILENT, cause), (Hearing.BACK, None)] * 2
    assert (desk.batches, desk.thread.failures) == ([[1], [2]], 2 * len(silence))


async def test_an_engine_that_is_silent_is_asked_with_long_pauses() -> None:
    """Each failure costs it something; a stop does not wait for such a pause."""
    source = Source(ConnectionError())
    pace = PollPace(failed_s=0.0, silent_s=1e6, most_failures=3)
    desk = Desk(source.poll, pace)
    desk.thread.start()
    await desk.until(lambda: desk.said)
    assert await desk.thread.stop(within_s=PATIENCE_S)
    assert source.polls == pace.most_failures


@pytest.mark.parametrize("cause", [SystemExit(3), KeyboardInterrupt()])
async def test_a_thread_that_is_ended_from_inside_says_so(cause: BaseException) -> None:
    """Not even the end of the interpreter's patience ends it silently."""
    desk = Desk(Source(cause).poll)
    desk.thread.start()
    await desk.until(lambda: desk.deaths)
    assert desk.deaths == [cause]
    assert await desk.thread.stop()


async def test_an_engine_without_requests_may_assert_for_as_long_as_it_likes() -> None:
    """Inside the caller's process it does so until the first one; an idle worker is not a dead one."""
    nothing_yet = AssertionError()
    idle = EAGER.most_failures * 3
    desk = Desk(Source(*[nothing_yet] * idle, [1], []).poll)
    desk.thread.start()
    await desk.until(lambda: desk.batches)
    assert await desk.thread.stop()
    assert (desk.thread.failures, desk.said) == (0, [])


async def test_an_assertion_after_the_first_batch_is_a_failure() -> None:
    """By then it means something else."""
    desk = Desk(Source([1], AssertionError()).poll)
    desk.thread.start()
    await desk.until(lambda: desk.said)
    assert await desk.thread.stop()
    assert [hearing for hearing, _ in desk.said] == [Hearing.SILENT]


async def test_a_batch_that_cannot_be_taken_is_a_death_that_is_told() -> None:
    """A bug in a reader would otherwise only be seen by the loop's handler."""
    desk = Desk(Source([1]).poll, is_full=True)
    desk.thread.start()
    await desk.until(lambda: desk.deaths)
    assert [type(cause) for cause in desk.deaths] == [LookupError]
    assert await desk.thread.stop()


async def test_a_loop_that_is_behind_holds_the_thread_up() -> None:
    """Only so many batches wait for it; the others stay with the engine."""
    source = Source([1])
    ahead: list[int] = []
    desk = Desk(source.poll)
    desk.on_news = lambda: ahead.append(source.polls - len(desk.batches))
    desk.thread.start()
    hold_the_loop(lambda: source.polls > EAGER.undelivered)
    await desk.until(lambda: len(desk.batches) > 100)
    assert await desk.thread.stop()
    # The one that it holds in its hand, beside those that wait.
    assert max(ahead) <= EAGER.undelivered + 1


async def test_a_stop_frees_a_thread_that_waits_for_room() -> None:
    """Batches that were not taken are dropped, not waited for."""
    source = Source([1])
    desk = Desk(source.poll)
    desk.thread.start()
    hold_the_loop(lambda: source.polls > EAGER.undelivered)
    assert await desk.thread.stop()
    assert desk.batches == []


async def test_a_stop_does_not_wait_for_a_poll_that_hangs() -> None:
    """It says so; and what that poll brings in the end is for nobody."""
    gate = Gate()
    desk = Desk(gate.poll)
    desk.thread.start()
    await asyncio.to_thread(gate.is_entered.wait, PATIENCE_S)
    assert not await desk.thread.stop(within_s=0.01)
    gate.open()
    assert await desk.thread.stop(within_s=PATIENCE_S)
    assert (desk.batches, desk.said) == ([], [])


async def test_nobody_is_told_of_failures_that_a_stop_caused() -> None:
    """An engine that is being shut down refuses polls; that is no news."""
    started, may_fail = threading.Event(), threading.Event()

    def poll() -> list[int]:
        started.set()
        may_fail.wait(PATIENCE_S)
        raise AttributeError("no executor")

    desk = Desk(poll, PollPace(most_failures=1))
    desk.thread.start()
    await asyncio.to_thread(started.wait, PATIENCE_S)
    stopping = asyncio.ensure_future(desk.thread.stop())
    await asyncio.sleep(0)
    may_fail.set()
    assert await stopping
    assert (desk.said, desk.thread.failures) == ([], 0)


async def test_a_thread_that_never_began_is_stopped_at_once_and_one_begins_once() -> None:
    """Also twice."""
    desk = Desk(Source([]).poll)
    assert await desk.thread.stop()
    assert await desk.thread.stop()
    other = Desk(Source([]).poll)
    other.thread.start()
    with pytest.raises(RuntimeError, match="started already"):
        other.thread.start()
    assert await other.thread.stop()


def test_a_loop_that_is_gone_ends_the_thread() -> None:
    """Nobody is left who could stop it."""
    gate = Gate()

    async def leave_it() -> None:
        Desk(gate.poll).thread.start()
        await asyncio.to_thread(gate.is_entered.wait, PATIENCE_S)

    asyncio.run(leave_it())
    gate.open()
    join_threads(NAME)
