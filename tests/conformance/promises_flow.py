"""What an engine promises about many requests at once, and about those that are held or ended early."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import anyio
import pytest

from protocols.steps import FinishReason
from tests.conformance.reader import EngineReader, Heard, make_spec

if TYPE_CHECKING:
    from collections.abc import Callable

# Undelivered steps, and the step that was under way: what may still come after a word to the engine.
LATE_TOKENS = 5


def fill(reader: EngineReader) -> list[Heard]:
    """Take all slots with the longest requests."""
    longest = make_spec(max_tokens=reader.info.context_length - 3)
    return [reader.submit(longest) for _ in range(reader.info.max_num_seqs)]


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

    async def test_an_engine_that_is_not_read_waits(self, reader: EngineReader) -> None:
        """It runs at most four steps ahead of its reader, and loses none of them."""
        heard = reader.submit(make_spec(max_tokens=50))
        await reader.read_step()
        # The one place where nothing but time can show that nothing happens.
        await anyio.sleep(0.1)
        said = len(heard.tokens)
        reader.engine.abort(heard.engine_id)
        await reader.read_to_end(heard)
        assert heard.reason is FinishReason.CANCELLED
        assert len(heard.tokens) <= said + LATE_TOKENS


class AbortPromises:
    """A request can be ended early in every phase, and its slot is free again."""

    async def test_running(self, reader: EngineReader) -> None:
        """A running request ends at once, as cancelled, and keeps the tokens it got."""
        reference = await reader.complete(make_spec(max_tokens=50))
        heard = reader.submit(make_spec(max_tokens=50))
        await reader.read_until(lambda: len(heard.tokens) >= 2)
        said = len(heard.tokens)
        reader.engine.abort(heard.engine_id)
        await reader.read_to_end(heard)
        assert heard.last_reason is FinishReason.CANCELLED
        assert said <= len(heard.tokens) <= said + LATE_TOKENS
        assert heard.tokens == reference.tokens[: len(heard.tokens)]

    async def test_before_it_ran(self, reader: EngineReader) -> None:
        """A request that is aborted in the turn it was submitted ends as cancelled."""
        heard = reader.submit(make_spec(max_tokens=50))
        reader.engine.abort(heard.engine_id)
        await reader.read_to_end(heard)
        assert heard.last_reason is FinishReason.CANCELLED

    async def test_waiting_for_a_slot(self, reader: EngineReader) -> None:
        """A request that waits behind a full batch is confirmed without a token, the others unharmed."""
        running = fill(reader)
        await reader.read_until(lambda: all(heard.tokens for heard in running))
        heard = reader.submit(make_spec())
        reader.engine.abort(heard.engine_id)
        await reader.read_to_end(heard)
        assert heard.last_reason is FinishReason.CANCELLED
        assert not heard.tokens
        assert reader.live == running

    async def test_the_slot_is_free(self, reader: EngineReader) -> None:
        """A request that waited behind a full batch gets the slot of an aborted one."""
        running = fill(reader)
        waiting = reader.submit(make_spec(max_tokens=2))
        await reader.read_until(lambda: all(heard.tokens for heard in running))
        assert not waiting.tokens
        reader.engine.abort(running[0].engine_id)
        await reader.read_to_end(waiting)
        assert waiting.last_reason is FinishReason.LENGTH
        assert reader.live == running[1:]

    async def test_twice_finished_unknown(self, reader: EngineReader) -> None:
        """Aborts that come too late, again, or for nobody are ignored, and nothing is said about them."""
        finished = await reader.complete(make_spec())
        running = reader.submit(make_spec(max_tokens=50))
        await reader.read_until(lambda: bool(running.tokens))
        for _ in range(2):
            reader.engine.abort(running.engine_id)
            reader.engine.abort(finished.engine_id)
            reader.engine.abort(type(finished.engine_id)(2**40))
        await reader.read_to_end(running)
        reader.engine.abort(running.engine_id)
        assert (await reader.complete(make_spec())).tokens == finished.tokens

    async def test_several_choices(self, reader: EngineReader) -> None:
        """All choices of a request end with it, in one last delta."""
        n = min(reader.engine.capabilities.max_n, reader.info.max_num_seqs)
        if n == 1:
            pytest.skip("this engine has one choice per request")
        heard = reader.submit(make_spec(n=n, max_tokens=50))
        await reader.read_until(lambda: bool(heard.token_ids[-1]))
        reader.engine.abort(heard.engine_id)
        await reader.read_to_end(heard)
        assert heard.last_reason is FinishReason.CANCELLED
        # Their slots are free again.
        assert (await reader.complete(make_spec(n=n))).reasons == dict.fromkeys(range(n), FinishReason.LENGTH)


class PausePromises:
    """One request can be held back, for as long as its reader needs."""

    @pytest.fixture(autouse=True)
    def _needs_pause(self, make_engine: Callable[[], object]) -> None:
        if not make_engine().capabilities.can_pause:  # type: ignore[attr-defined]
            pytest.skip("this engine cannot pause a request")

    async def test_a_paused_request_is_silent(self, reader: EngineReader) -> None:
        """Only the paused request is held back, and it goes on with the very next token."""
        reference = await reader.complete(make_spec(max_tokens=40))
        held = reader.submit(make_spec(max_tokens=40))
        other = reader.submit(make_spec(max_tokens=40))
        await reader.read_until(lambda: len(held.tokens) >= 2)
        said = len(held.tokens)
        reader.engine.pause(held.engine_id)
        await reader.read_to_end(other)
        assert said <= len(held.tokens) <= said + LATE_TOKENS
        reader.engine.resume(held.engine_id)
        await reader.read_to_end(held)
        assert held.tokens == other.tokens == reference.tokens

    async def test_paused_before_it_ran(self, reader: EngineReader) -> None:
        """A request can be held back from its submit on, also while it waits for a slot."""
        running = fill(reader)
        held = reader.submit(make_spec())
        reader.engine.pause(held.engine_id)
        for heard in running:
            reader.engine.abort(heard.engine_id)
        other = await reader.complete(make_spec())
        assert len(held.tokens) == 0
        reader.engine.resume(held.engine_id)
        await reader.read_to_end(held)
        assert held.tokens == other.tokens

    async def test_often(self, reader: EngineReader) -> None:
        """However often a request is paused and resumed, its tokens are the same."""
        reference = await reader.complete(make_spec(max_tokens=40))
        held = reader.submit(make_spec(max_tokens=40))
        chance = random.Random(1)
        while not held.is_ended:
            for _ in range(chance.randint(1, 3)):
                reader.engine.pause(held.engine_id)
            reader.engine.resume(held.engine_id)
            await reader.read_step()
        assert held.tokens == reference.tokens

    async def test_aborted_while_paused(self, reader: EngineReader) -> None:
        """A paused request that is aborted ends without being resumed, and frees its slot."""
        held = fill(reader)
        await reader.read_until(lambda: all(heard.tokens for heard in held))
        for heard in held:
            reader.engine.pause(heard.engine_id)
        for heard in held:
            reader.engine.abort(heard.engine_id)
        await reader.read_to_end(*held)
        assert {heard.last_reason for heard in held} == {FinishReason.CANCELLED}
        await reader.complete(make_spec())

    async def test_late_words_are_ignored(self, reader: EngineReader) -> None:
        """Pause and resume of a request that has ended, and resume of one that runs, change nothing."""
        ended = await reader.complete(make_spec())
        reader.engine.pause(ended.engine_id)
        reader.engine.resume(ended.engine_id)
        heard = reader.submit(make_spec())
        reader.engine.resume(heard.engine_id)
        await reader.read_to_end(heard)
        assert heard.tokens == ended.tokens
