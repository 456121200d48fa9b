"""What an engine promises about many requests at once and about how its steps are read."""

from __future__ import annotations

import asyncio
import random

import anyio
import anyio.lowlevel

from protocols.steps import FinishReason
from tests.conformance.reader import EngineReader, Heard, make_spec


class FlowPromises:
    """Concurrency and the reading of steps."""

    async def test_more_requests_than_slots(self, reader: EngineReader) -> None:
        """Three times as many requests as slots all end; never more run than there are slots."""
        requests = [
            reader.submit(make_spec(max_tokens=1 + number % 7))
            for number in range(3 * reader.info.max_num_seqs)
        ]
        await reader.read_to_end(*requests)
        assert [len(heard.tokens) for heard in requests] == [heard.spec.stop.max_tokens for heard in requests]
        assert reader.most_running == reader.info.max_num_seqs

    async def test_requests_come_and_go(self, reader: EngineReader) -> None:
        """Requests that arrive, end and are aborted in any order each end once, with a true reason."""
        chance = random.Random(1)
        requests: list[Heard] = []
        aborted: list[Heard] = []
        while len(requests) < 50:
            requests.append(reader.submit(make_spec(max_tokens=chance.randint(1, 9))))
            if chance.random() < 0.3:
                aborted.append(chance.choice(requests))
                reader.engine.abort(aborted[-1].engine_id)
            if reader.live and chance.random() < 0.6:
                await reader.read_step()
        await reader.read_to_end(*requests)
        for heard in requests:
            if heard.last_reason is FinishReason.LENGTH:
                assert len(heard.tokens) == heard.spec.stop.max_tokens
            else:
                assert heard.last_reason is FinishReason.CANCELLED
                assert heard in aborted

    async def test_a_cancelled_wait_loses_nothing(self, reader: EngineReader) -> None:
        """Cancelling `next_step` at any moment changes no token of any request."""
        reference = await reader.complete(make_spec(max_tokens=40))
        requests = [reader.submit(make_spec(max_tokens=40)) for _ in range(2)]
        chance = random.Random(1)
        while reader.live:
            asked = asyncio.ensure_future(reader.engine.next_step())
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
            if chance.random() < 0.5:
                asked.cancel()
            (step,) = await asyncio.gather(asked, return_exceptions=True)
            if not isinstance(step, BaseException):
                reader.on_step(step)
            elif not isinstance(step, asyncio.CancelledError):
                raise step
        assert [heard.tokens for heard in requests] == [reference.tokens] * 2

    async def test_an_idle_engine_can_be_left_waiting(self, reader: EngineReader) -> None:
        """A wait for a step that never comes can be cancelled, and the next request is served."""
        await reader.complete(make_spec())
        with anyio.move_on_after(0):
            await reader.engine.next_step()
        asked = asyncio.ensure_future(reader.engine.next_step())
        await anyio.wait_all_tasks_blocked()
        heard = reader.submit(make_spec())
        reader.on_step(await asked)
        await reader.read_to_end(heard)

    async def test_a_reader_in_a_loop_starves_nobody(self, reader: EngineReader) -> None:
        """Other tasks get at least one turn for every step."""
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(count)
            await reader.complete(make_spec(max_tokens=50))
            tasks.cancel_scope.cancel()
        assert turns >= reader.steps
