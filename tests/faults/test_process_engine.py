"""The engine in a child process keeps the promises of all engines: what a fault does to it is the fault's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from actors.engines.synthetic import SyntheticConfig
from protocols.errors import EngineDead
from tests.conformance.check_engine import EngineConformance
from tests.conformance.promises_pause import PausePromises
from tests.doubles.process_engine import ProcessEngine

if TYPE_CHECKING:
    from collections.abc import Callable

    from protocols.engine import Engine

CONFIG = SyntheticConfig(step_ms=1.0, max_num_seqs=4, context_length=128)


class TestProcessEngine(EngineConformance, PausePromises):
    @pytest.fixture
    def make_engine(self) -> Callable[[], Engine]:
        return lambda: ProcessEngine(CONFIG)


def test_an_idle_driver_hears_that_its_process_has_ended() -> None:
    """Nothing runs, nobody asks the child anything: `next_step` raises, with the exit code."""

    async def main() -> None:
        engine = ProcessEngine(CONFIG)
        await engine.start()
        waiting = asyncio.create_task(engine.next_step())
        await engine.die_now()
        with pytest.raises(EngineDead) as caught:
            async with asyncio.timeout(10):
                await waiting
        assert "code -9" in str(caught.value.__cause__)
        await engine.stop()

    asyncio.run(main())
