"""Promises of the lanes: bounded, in order, and what waits is taken without another turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import pytest

from actors.mailbox import receive_all, send

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream

pytestmark = pytest.mark.anyio


def never() -> None:
    raise AssertionError("the lane is not full")


async def test_messages_come_in_order_until_the_writer_closes() -> None:
    """Those in the lane when it is closed are still given out."""
    writer, reader = anyio.create_memory_object_stream[int](10)
    async with reader:
        async with writer:
            for number in range(5):
                await send(writer, number, never)
        assert [message async for message in receive_all(reader)] == [0, 1, 2, 3, 4]


async def test_a_burst_is_taken_in_one_turn() -> None:
    """Nobody else runs between two messages that both wait."""
    writer, reader = anyio.create_memory_object_stream[int](10)
    turn = 0
    taken_in: list[int] = []

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks, reader:
        tasks.start_soon(count_turns)
        async with writer:
            for number in range(4):
                writer.send_nowait(number)
        async for _ in receive_all(reader):
            taken_in.append(turn)  # noqa: PERF401 - a comprehension would not look at every message
        tasks.cancel_scope.cancel()
    assert len(taken_in) == 4
    assert len(set(taken_in)) == 1


async def test_a_full_lane_makes_its_writer_wait() -> None:
    """Never a drop; and it says that it has to wait."""
    writer, reader = anyio.create_memory_object_stream[int](1)
    async with writer, reader:
        waits: list[int] = []
        await send(writer, 0, lambda: waits.append(0))
        with anyio.move_on_after(5) as scope:
            await send(writer, 1, lambda: waits.append(1))
        assert scope.cancelled_caught
        assert waits == [1]
        assert reader.receive_nowait() == 0
        with pytest.raises(anyio.WouldBlock):
            reader.receive_nowait()


async def break_at_first(reader: MemoryObjectReceiveStream[int]) -> None:
    async for _ in receive_all(reader):
        raise ZeroDivisionError


async def test_a_loop_left_by_an_exception_leaves_nothing_behind() -> None:
    """No suspended generator for the garbage collector (warnings are errors here)."""
    writer, reader = anyio.create_memory_object_stream[int](1)
    async with writer, reader:
        await send(writer, 0, never)
        with pytest.raises(ZeroDivisionError):
            await break_at_first(reader)
        await send(writer, 1, never)
        async for message in receive_all(reader):
            assert message == 1
            break
