"""What an engine promises about how full its KV cache is."""

from __future__ import annotations

from tests.conformance.reader import EngineReader, fill, make_spec

# An engine may tell its counts by and by, and miss a short burst.
_BURSTS = 5


class CachePromises:
    """Its counts follow its requests, in both directions."""

    async def test_used_blocks_rise_and_fall_with_requests(self, reader: EngineReader) -> None:
        """Whoever runs holds blocks; when all have ended nobody does, and that is told by itself."""
        blocks = reader.blocks
        blocks.most_used = 0
        if reader.info.total_blocks is None:
            await reader.complete(make_spec())
            assert blocks.most_used == 0
            return
        for _ in range(_BURSTS):
            await reader.read_to_end(*fill(reader))
            if blocks.most_used:
                break
        assert blocks.most_used, "requests that hold no blocks"
        await reader.read_until(lambda: not blocks.used)
