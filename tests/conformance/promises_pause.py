"""What an engine promises that can hold back one request while the others go on."""

from __future__ import annotations

import random

import anyio

from protocols.steps import FinishReason
from tests.conformance.promises_progress import wait_until_at_rest
from tests.conformance.reader import LATE_TOKENS, EngineReader, fill, make_spec


class PausePromises:
    """For engines with ``can_pause``, beside `EngineConformance`."""

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

    async def test_progress_stands_still_while_all_are_paused(self, reader: EngineReader) -> None:
        """Requests that are held back are no work, and their going on is progress again."""
        held = fill(reader)
        for heard in held:
            reader.engine.pause(heard.engine_id)
        await wait_until_at_rest(reader.engine)
        before = reader.engine.progress
        reader.engine.resume(held[0].engine_id)
        await reader.read_until(lambda: bool(held[0].tokens))
        assert reader.engine.progress != before

    async def test_late_words_are_ignored(self, reader: EngineReader) -> None:
        """Pause and resume of a request that has ended, and resume of one that runs, change nothing."""
        ended = await reader.complete(make_spec())
        reader.engine.pause(ended.engine_id)
        reader.engine.resume(ended.engine_id)
        heard = reader.submit(make_spec())
        reader.engine.resume(heard.engine_id)
        await reader.read_to_end(heard)
        assert heard.tokens == ended.tokens

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
