"""Promises of the lanes: bounded, in order, and what waits is taken without another turn."""

from __future__ import annotations

import anyio
import pytest

from actors.mailbox import receive_all, send

pytestmark = pytest.mark.anyio


async def test_messages_come_in_order_until_the_writer_closes() -> None:
    """Those in the lane when it is closed are still given out."""
    writer, reader = anyio.create_memory_object_stream[int](10)
    async with reader:
        async with writer:
            for number in range(5):
                await send(writer, number)
        assert [message async for message in receive_all(reader)] == [0, 1, 2, 3, 4]


async def test_a_burst_is_taken_in_one_turn() -> None:
    """Nobody else runs between two messages that both wait."""
    writer, reader = anyio.create_memory_object_stream[int](10)
    order: list[object] = []

    async def consume() -> None:
        async with reader:
            async for message in receive_all(reader):
                order.append(message)

    async def tick() -> None:
        order.append("turn")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(consume)
        await anyio.wait_all_tasks_blocked()
        async with writer:
            for number in range(4):
                writer.send_nowait(number)
            tasks.start_soon(tick)
            await anyio.wait_all_tasks_blocked()
    messages = [each for each in order if each != "turn"]
    assert messages == [0, 1, 2, 3]
    assert order.index(3) - order.index(0) <= 4


async def test_a_full_lane_makes_its_writer_wait() -> None:
    """Never a drop."""
    writer, reader = anyio.create_memory_object_stream[int](1)
    async with writer, reader:
        await send(writer, 0)
        with anyio.move_on_after(5) as scope:
            await send(writer, 1)
        assert scope.cancelled_caught
        assert reader.receive_nowait() == 0
        with pytest.raises(anyio.WouldBlock):
            reader.receive_nowait()


async def test_a_loop_left_by_an_exception_leaves_nothing_behind() -> None:
    """No suspended generator for the garbage collector (warnings are errors here)."""
    writer, reader = anyio.create_memory_object_stream[int](1)
    async with writer, reader:
        await send(writer, 0)
        with pytest.raises(ZeroDivisionError):
            async for _ in receive_all(reader):
                raise ZeroDivisionError
        await send(writer, 1)
        async for message in receive_all(reader):
            assert message == 1
            break
