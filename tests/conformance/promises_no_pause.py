"""What an engine promises that cannot hold a request back."""

from __future__ import annotations

import anyio

from protocols.steps import FinishReason
from tests.conformance.reader import EngineReader, make_spec

_TOKENS = 30
_PATIENCE = 200


class NoPausePromises:
    """For engines without ``can_pause``, beside `EngineConformance`."""

    async def test_what_nobody_takes_grows_into_one_step(self, reader: EngineReader) -> None:
        """It goes on, loses nothing, and its reader catches up at once."""
        heard = reader.submit(make_spec(max_tokens=_TOKENS))
        for _ in range(_PATIENCE):
            seen = reader.engine.progress
            await anyio.sleep(0.1)
            if reader.engine.progress == seen:
                break
        await reader.read_step()
        assert len(heard.tokens) == _TOKENS
        assert heard.reason is FinishReason.LENGTH

    async def test_pause_and_resume_do_nothing(self, reader: EngineReader) -> None:
        """Whoever calls them all the same."""
        heard = reader.submit(make_spec())
        reader.engine.pause(heard.engine_id)
        await reader.read_to_end(heard)
        reader.engine.resume(heard.engine_id)
        assert len(heard.tokens) == heard.spec.stop.max_tokens
