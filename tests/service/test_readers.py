"""How long ``cleanup()`` waits for generators: for those that are read to the end, and no longer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from actors.outbox import Outbox, Terminal
from actors.ticket import Ticket, Times
from actors.wakeup import EventWakeup
from protocols.errors import ReaderStalled
from protocols.steps import EngineId, FinishReason
from protocols.telemetry import CancelReason
from service.readers import ABORTED_READER_S, Readers
from tests.doubles.callers import FakeCaller

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

LIMIT_S = 50.0
# How exactly the moment is known at which somebody went.
LOOK_S = 0.15


# Every turn of a real loop takes some time.
TURN_S = 1e-6


class JumpingLoop(asyncio.SelectorEventLoop):
    """A loop whose clock jumps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        self._select = self._selector.select  # type: ignore[attr-defined]
        self._selector.select = self._jump  # type: ignore[attr-defined]

    def time(self) -> float:
        return self._now_s

    def _jump(self, timeout: float | None) -> list[Any]:
        assert timeout is not None, "nothing is left that could happen"
        self._now_s += max(timeout, TURN_S)
        return list(self._select(0))


def run(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(work)


def reader(readers: Readers) -> Ticket:
    """One generator that is being read."""
    caller = FakeCaller()
    outbox = Outbox(EventWakeup(), lambda: 0.0, 32, lambda: None)
    ticket = Ticket(EngineId(1), caller, outbox, Times(arrived_s=0.0))
    readers.opened(ticket)
    return ticket


def leave(ticket: Ticket) -> None:
    assert isinstance(ticket.caller, FakeCaller)
    ticket.caller.leave()


def take_last_word(ticket: Ticket) -> None:
    ticket.outbox.finish(Terminal(finish_reason=FinishReason.STOP))
    ticket.outbox.is_drained = True


def cancel(ticket: Ticket) -> None:
    ticket.cancel_reason = CancelReason.CLIENT


def ignore(_readers: int, _left_s: float) -> None:
    """Nobody listens."""


def now_s() -> float:
    return asyncio.get_running_loop().time()


def test_without_readers_there_is_nothing_to_wait_for() -> None:
    """An idle worker does not wait."""

    async def main() -> None:
        assert await Readers(ignore).wait_closed(LIMIT_S) == 0
        assert now_s() < 0.001

    run(main())


def test_a_reader_that_is_there_is_waited_for() -> None:
    """Twenty seconds of a slow reader are spent, and not one more."""

    async def main() -> None:
        readers = Readers(ignore)
        ticket = reader(readers)
        asyncio.get_running_loop().call_at(20.0, readers.closed, ticket)
        assert await readers.wait_closed(LIMIT_S) == 0
        assert now_s() == pytest.approx(20.0, abs=0.001)

    run(main())


def test_the_limit_holds_for_everybody() -> None:
    """A reader that never ends is left behind, and counted."""

    async def main() -> None:
        readers = Readers(ignore)
        reader(readers)
        assert await readers.wait_closed(LIMIT_S) == 1
        assert now_s() == pytest.approx(LIMIT_S, abs=0.001)

    run(main())


@pytest.mark.parametrize("gone", [leave, cancel, take_last_word])
def test_a_reader_that_is_gone_gets_one_second(gone: Callable[[Ticket], None]) -> None:
    """The framework drops generators without a word: waiting for one must not delay the exit."""

    async def main() -> None:
        readers = Readers(ignore)
        gone(reader(readers))
        assert await readers.wait_closed(LIMIT_S) == 1
        assert now_s() == pytest.approx(ABORTED_READER_S, abs=0.001)

    run(main())


@pytest.mark.parametrize("gone", [leave, cancel, take_last_word])
def test_a_reader_that_goes_meanwhile_gets_one_second_from_then(gone: Callable[[Ticket], None]) -> None:
    """Nobody tells us that the client of a request that has ended is gone: we look."""

    async def main() -> None:
        readers = Readers(ignore)
        asyncio.get_running_loop().call_at(10.0, gone, reader(readers))
        assert await readers.wait_closed(LIMIT_S) == 1
        assert now_s() == pytest.approx(10.0 + ABORTED_READER_S, abs=LOOK_S)

    run(main())


def test_one_who_is_there_keeps_the_door_open_for_one_who_is_gone() -> None:
    """As long as somebody reads, a dropped generator costs nothing."""

    async def main() -> None:
        readers = Readers(ignore)
        leave(reader(readers))
        present = reader(readers)
        asyncio.get_running_loop().call_at(5.0, readers.closed, present)
        assert await readers.wait_closed(LIMIT_S) == 1
        assert now_s() == pytest.approx(5.0 + ABORTED_READER_S, abs=LOOK_S)

    run(main())


def test_a_reader_that_was_given_up_is_not_there() -> None:
    """Nobody waits for it, nobody counts it, and it does not delay the exit by a second."""

    async def main() -> None:
        readers = Readers(ignore)
        reader(readers).outbox.abandon(Terminal(error=ReaderStalled(30.0)))
        assert len(readers) == 0
        assert await readers.wait_closed(LIMIT_S) == 0
        assert now_s() < 0.001

    run(main())


def test_a_reader_that_is_given_up_meanwhile_ends_the_wait() -> None:
    """From then on nobody is there; one that is, is waited for."""

    async def main() -> None:
        readers = Readers(ignore)
        stalled = reader(readers)
        give_up = Terminal(error=ReaderStalled(30.0))
        asyncio.get_running_loop().call_at(10.0, stalled.outbox.abandon, give_up)
        assert await readers.wait_closed(LIMIT_S) == 0
        assert now_s() == pytest.approx(10.0, abs=LOOK_S)

    run(main())


def test_while_it_waits_it_says_for_how_many_and_how_long() -> None:
    """At once, and every five seconds; of those who are gone nothing is said."""
    told: list[tuple[int, float]] = []

    async def main() -> None:
        readers = Readers(lambda count, left_s: told.append((count, left_s)))
        leave(reader(readers))
        present = [reader(readers), reader(readers)]
        asyncio.get_running_loop().call_at(7.0, readers.closed, present[0])
        asyncio.get_running_loop().call_at(11.0, readers.closed, present[1])
        await readers.wait_closed(LIMIT_S)

    run(main())
    assert [count for count, _ in told] == [2, 2, 1]
    assert [left_s for _, left_s in told] == pytest.approx([50.0, 45.0, 40.0], abs=2 * LOOK_S)


def test_a_limit_in_the_past_waits_for_nobody() -> None:
    """After the budget is spent the answer comes at once."""

    async def main() -> None:
        readers = Readers(ignore)
        reader(readers)
        assert await readers.wait_closed(-1.0) == 1
        assert now_s() < 0.001

    run(main())


def test_closing_twice_is_closing_once() -> None:
    """A generator may tell us of its end more than once."""

    async def main() -> None:
        readers = Readers(ignore)
        ticket = reader(readers)
        readers.closed(ticket)
        readers.closed(ticket)
        assert len(readers) == 0

    run(main())
