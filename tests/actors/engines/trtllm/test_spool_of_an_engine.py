"""The folder in which an engine's processors tell of themselves lives exactly as long as the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from actors.engines.trtllm import TrtllmConfig, TrtllmEngine
from actors.engines.trtllm.processors import spool
from protocols.errors import EngineStartError, StartStopped
from tests.actors.engines.trtllm.operators_processors import Counting
from tests.actors.engines.trtllm.trap_world import config_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120), pytest.mark.usefixtures("double")]

SPOOLED: dict[str, Any] = {"processors": {"Counting": Counting}}


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where spools are made."""
    monkeypatch.setattr(spool, "_IN_MEMORY", tmp_path)
    return tmp_path


def spools_in(memory: Path) -> list[str]:
    return [path.name for path in memory.iterdir() if path.is_dir()]


async def start(config: TrtllmConfig, memory: Path, spools: int) -> TrtllmEngine:
    engine = TrtllmEngine(config)
    await engine.start()
    assert len(spools_in(memory)) == spools
    return engine


async def test_a_stop_takes_it_away(memory: Path, folder: Path) -> None:
    """It lies in memory, which no end of the process would free."""
    engine = await start(config_of(folder, SPOOLED), memory, spools=1)
    await engine.stop()
    assert spools_in(memory) == []
    await engine.stop()


async def test_without_processors_there_is_none(memory: Path, folder: Path) -> None:
    """Such an engine pays nothing."""
    engine = await start(config_of(folder), memory, spools=0)
    await engine.stop()


async def test_one_that_does_not_start_leaves_none_either(memory: Path, folder: Path) -> None:
    """Whatever kept it from starting: the stop is owed all the same."""
    engine = TrtllmEngine(config_of(folder, SPOOLED, no_such_argument=1))
    with pytest.raises(EngineStartError):
        await engine.start()
    await engine.stop()
    assert spools_in(memory) == []


async def test_one_that_was_stopped_before_makes_none(memory: Path, folder: Path) -> None:
    """A signal may come before the start does."""
    engine = TrtllmEngine(config_of(folder, SPOOLED))
    await engine.stop()
    with pytest.raises(StartStopped):
        await engine.start()
    assert spools_in(memory) == []
