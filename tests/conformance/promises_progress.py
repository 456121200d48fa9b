"""What an engine promises about its sign of life between steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from tests.conformance.reader import EngineReader, fill, make_spec

if TYPE_CHECKING:
    from protocols.engine import Engine

# Four undelivered steps and the one under way: whoever has read more has seen the engine compute meanwhile.
_MORE_THAN_AHEAD = 6
# An engine at rest has come to it long before this is over.
_REST_S = 0.2
_PATIENCE = 50


async def wait_until_at_rest(engine: Engine) -> None:
    """Until its progress stands still, or the test fails."""
    for _ in range(_PATIENCE):
        seen = engine.progress
        await anyio.sleep(_REST_S)
        if engine.progress == seen:
            return
    raise AssertionError("an engine with nothing to do goes on making progress")


class ProgressPromises:
    """It moves while the engine computes, and only then."""

    async def test_progress_moves_while_it_works(self, reader: EngineReader) -> None:
        """Never the same number twice, over as many steps as the engine may be ahead."""
        running = fill(reader)
        seen = [reader.engine.progress]
        while len(seen) < 8:
            for _ in range(_MORE_THAN_AHEAD):
                await reader.read_step()
            seen.append(reader.engine.progress)
        assert len(set(seen)) == len(seen)
        assert all(not heard.is_ended for heard in running)

    async def test_progress_stands_still_at_rest(self, reader: EngineReader) -> None:
        """Before the first request, after the last one, and it goes on with the next."""
        await wait_until_at_rest(reader.engine)
        for _ in range(2):
            before = reader.engine.progress
            await reader.complete(make_spec())
            assert reader.engine.progress != before
            await wait_until_at_rest(reader.engine)

    async def test_progress_can_be_read_at_any_time(self, reader: EngineReader) -> None:
        """Also after the stop."""
        await reader.complete(make_spec())
        await reader.engine.stop()
        await wait_until_at_rest(reader.engine)
