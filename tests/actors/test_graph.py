from __future__ import annotations
import pytest
from tests.doubles.engines import SteppingEngine
pytestmark = pytest.mark.anyio

async def test_smoke(open_world):
    """x"""
    async with open_world(SteppingEngine()) as world:
        visit = world.ask(max_tokens=5)
        answer = await visit.answer()
        assert answer.tokens == [1000,1001,1002,1003,1004]
        assert answer.finish_reasons == ["length"]
