"""What an engine promises about requests that are ended early."""

from __future__ import annotations

from protocols.steps import EngineId, FinishReason
from tests.conformance.reader import LATE_TOKENS, EngineReader, fill, make_spec, most_choices


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
            reader.engine.abort(EngineId(2**40))
        await reader.read_to_end(running)
        reader.engine.abort(running.engine_id)
        assert (await reader.complete(make_spec())).tokens == finished.tokens

    async def test_several_choices(self, reader: EngineReader) -> None:
        """All choices of a request end with it, in one last delta."""
        n = most_choices(reader)
        heard = reader.submit(make_spec(n=n, max_tokens=50))
        await reader.read_until(lambda: bool(heard.token_ids[-1]))
        reader.engine.abort(heard.engine_id)
        await reader.read_to_end(heard)
        assert heard.last_reason is FinishReason.CANCELLED
        # Their slots are free again.
        assert (await reader.complete(make_spec(n=n))).reasons == dict.fromkeys(range(n), FinishReason.LENGTH)
