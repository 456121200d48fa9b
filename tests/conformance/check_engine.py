"""The conformance kit: what `protocols.engine.Engine` promises, as tests that any engine can run.

    class TestMyEngine(EngineConformance, PausePromises):
        @pytest.fixture
        def make_engine(self) -> Callable[[], Engine]:
            return lambda: MyEngine(...)

`PausePromises` belongs to engines that can pause, and only to them, `NoPausePromises` to the others; so do
`LogprobPromises`, `GuidedPromises` and `ProcessorPromises` to those that say they can. `SamplingPromises` are
for engines with a model. It shall be small: two to eight slots, a context of at least 64 tokens. Override
`reader` to share one started engine between tests where a start is expensive.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import pytest

from tests.conformance.promises_abort import AbortPromises
from tests.conformance.promises_cache import CachePromises
from tests.conformance.promises_flow import FlowPromises
from tests.conformance.promises_guided import GuidedPromises
from tests.conformance.promises_life import LifePromises, stop
from tests.conformance.promises_logprobs import LogprobPromises
from tests.conformance.promises_no_pause import NoPausePromises
from tests.conformance.promises_output import OutputPromises
from tests.conformance.promises_pause import PausePromises
from tests.conformance.promises_processors import ProcessorPromises
from tests.conformance.promises_progress import ProgressPromises
from tests.conformance.reader import EngineReader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from protocols.engine import Engine


class EngineConformance(
    LifePromises, OutputPromises, FlowPromises, AbortPromises, ProgressPromises, CachePromises
):
    """What every engine promises. A subclass has a `make_engine` that makes engines not yet started."""

    pytestmark = pytest.mark.anyio

    @pytest.fixture(params=["asyncio", "uvloop"])
    def anyio_backend(self, request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
        """The loops that the worker runs on."""
        return "asyncio", {"use_uvloop": request.param == "uvloop"}

    @pytest.fixture
    async def reader(self, make_engine: Callable[[], Engine]) -> AsyncIterator[EngineReader]:
        """A started engine and its reader. Whatever the test left running still ends as promised."""
        async with open_reader(make_engine()) as reader:
            yield reader

    def test_it_is_held_to_what_it_can_do(self, make_engine: Callable[[], Engine]) -> None:
        """What an engine says it can, it is tested for."""
        can = make_engine().capabilities
        assert can.can_pause == isinstance(self, PausePromises)
        assert can.can_pause != isinstance(self, NoPausePromises)
        assert (can.max_logprobs is not None) == isinstance(self, LogprobPromises)
        assert bool(can.guided) == isinstance(self, GuidedPromises)
        assert bool(can.processors) == isinstance(self, ProcessorPromises)


@asynccontextmanager
async def open_reader(engine: Engine) -> AsyncIterator[EngineReader]:
    """Start an engine; abort what the block leaves behind, see it confirmed, and stop."""
    try:
        reader = EngineReader(engine, await engine.start())
        yield reader
        for heard in reader.live:
            engine.abort(heard.engine_id)
        await reader.read_to_end(*reader.live)
    finally:
        with anyio.CancelScope(shield=True):
            await stop(engine)
