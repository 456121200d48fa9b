"""Sleep and wake of TensorRT-LLM's double: its memory is in another process, which faults without it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from actors.engines.trtllm.config import TrtllmConfig
from actors.engines.trtllm.life.memory import TrtllmMaintenance
from actors.engines.trtllm.life.memory_rules import MEMORIES, MemoryRules
from protocols.errors import MaintenanceFailed
from tests.doubles.threads import join_threads
from tests.doubles.trtllm_llms import ask, open_llm, read, write_folder
from tests.doubles.trtllm_site import double_on_path

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.anyio

ABLE: dict[str, Any] = {"sleep_config": {}, "kv_cache_config": {"enable_block_reuse": False}}
BOTH = ("kv_cache", "model_weights")


@pytest.fixture(autouse=True)
def _double() -> Iterator[None]:
    with double_on_path():
        yield
    join_threads("trtllm-memory")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_folder(tmp_path)


def maintenance_of(llm: Any, model: Path, arguments: dict[str, Any], lost: list[str]) -> TrtllmMaintenance:
    """As the driver makes it; `lost` grows when it says that the cache is."""
    config = TrtllmConfig(model_path=model, vocab_size=8, context_length=8, arguments=arguments)
    return TrtllmMaintenance(lambda: llm, MemoryRules.of(config), lambda: lost.append("cache"))


@pytest.mark.parametrize("gpus", [1, 2])
async def test_every_kind_of_memory_goes_and_comes_back(model: Path, gpus: int) -> None:
    """On every rank; the engine works as before."""
    arguments: dict[str, Any] = {**ABLE, "tensor_parallel_size": gpus}
    with open_llm(model, environ={"DOUBLE_GPUS": str(gpus)}, **arguments) as llm:
        lost: list[str] = []
        maintenance = maintenance_of(llm, model, arguments, lost)
        maintenance.check(MEMORIES)
        await maintenance.sleep(MEMORIES)
        assert maintenance.asleep == set(MEMORIES)
        await maintenance.wake()
        assert maintenance.asleep == set()
        assert (await read(ask(llm, [5], max_tokens=2))).reasons == ["length"]
        assert lost == ["cache"]


async def test_what_fails_half_way_is_all_taken_back(model: Path) -> None:
    """A rank that refuses leaves the others without their memory; after `wake` nothing faults."""
    script = {"sleep_fails_at": "model_weights", "wakeup_fails_at": "model_weights"}
    with open_llm(model, script, **ABLE) as llm:
        maintenance = maintenance_of(llm, model, ABLE, [])
        with pytest.raises(MaintenanceFailed, match=r"^sleep: .*rank"):
            await maintenance.sleep(BOTH)
        assert maintenance.asleep == set(BOTH)
        with pytest.raises(MaintenanceFailed, match=r"^wakeup: .*rank"):
            await maintenance.wake()
        assert maintenance.asleep == set(BOTH)
        await maintenance.wake()
        assert maintenance.asleep == set()
        assert (await read(ask(llm, [5], max_tokens=2))).error is None


async def test_a_sleep_may_be_tried_again(model: Path) -> None:
    """The memory that was gone already is none the worse for it."""
    with open_llm(model, {"sleep_fails_at": "model_weights"}, **ABLE) as llm:
        maintenance = maintenance_of(llm, model, ABLE, [])
        with pytest.raises(MaintenanceFailed):
            await maintenance.sleep(BOTH)
        await maintenance.sleep(BOTH)
        await maintenance.wake()
        assert (await read(ask(llm, [5], max_tokens=2))).error is None


async def test_the_librarys_own_refusal_is_told_in_its_words(model: Path) -> None:
    """Should the rules ever let through what it refuses."""
    with open_llm(model) as llm:
        maintenance = maintenance_of(llm, model, ABLE, [])
        with pytest.raises(MaintenanceFailed, match="sleep_config"):
            await maintenance.sleep(BOTH)


async def test_an_engine_whose_process_has_died_is_a_failure_and_no_hang(model: Path) -> None:
    """Its memory is gone for good; the driver's health check ends the worker."""
    with open_llm(model, **ABLE) as llm:
        maintenance = maintenance_of(llm, model, ABLE, [])
        await maintenance.sleep(BOTH)
        executor: Any = llm._executor
        executor._process.kill()
        with pytest.raises(MaintenanceFailed, match="wakeup"):
            await maintenance.wake()
        assert maintenance.asleep == set(BOTH)
