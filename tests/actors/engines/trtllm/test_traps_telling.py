"""Traps of what the engine tells beside its answers: polls that raise, rows that make no sense, one registry.

None of it is needed to answer: whatever happens there, requests are served.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from prometheus_client import REGISTRY

from actors.engines.trtllm.figures.polling import PollPace, PollThread
from protocols.steps import EngineId, KvCleared, KvEvent, KvMalformed, KvStored
from tests.actors.engines.trtllm.kv_telling import Telling, block
from tests.actors.engines.trtllm.stats_telling import stats_row
from tests.actors.engines.trtllm.trap_world import (
    PLAIN,
    begin_neighbour,
    check_untouched,
    config_of,
    open_trapped,
)
from tests.conformance.reader import EngineReader, make_spec
from tests.doubles.trtllm_llms import write_folder

if TYPE_CHECKING:
    from pathlib import Path

    from actors.engines.trtllm import TrtllmConfig
    from protocols.steps import EngineStep

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60), pytest.mark.usefixtures("double")]

# The polls wait in the engine; the pauses are not what is tested.
PACE = PollPace(rest_s=0.0, idle_s=0.0, failed_s=0.0, silent_s=0.01, most_failures=3)
PATIENCE_S = 15.0
BLOCK = 4


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = partial(PollThread[Any], pace=PACE)
    monkeypatch.setattr("actors.engines.trtllm.figures.telling.PollThread", at_once)


def telling(folder: Path, **fields: Any) -> TrtllmConfig:
    """Of everything."""
    return config_of(
        write_folder(folder),
        {"publishes_kv_events": True, **fields},
        enable_iter_perf_stats=True,
        return_perf_metrics=True,
        kv_cache_config={"event_buffer_max_size": 100, "tokens_per_block": BLOCK},
    )


async def steps_until(reader: EngineReader, is_so: Any) -> list[EngineStep]:
    """What comes until it is so of what has come."""
    steps: list[EngineStep] = []
    with anyio.fail_after(PATIENCE_S):
        while not is_so(steps):
            steps.append(await reader.engine.next_step())
    return steps


def events_of(steps: list[EngineStep]) -> list[KvEvent]:
    return [event for step in steps for event in step.kv_events]


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]


async def test_polls_of_events_that_only_raise_leave_nothing_known(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Routers are told to forget, the log says it once, and the engine serves."""
    async with open_trapped(telling(tmp_path), {"events_error": "no"}) as reader:
        with caplog.at_level(logging.ERROR, "actors.engines.trtllm"):
            steps = await steps_until(reader, lambda steps: KvCleared() in events_of(steps))
        assert events_of(steps) == [KvCleared()]
        assert len(errors(caplog)) == 1
        await check_untouched(reader)


async def test_polls_of_statistics_that_only_raise_hurt_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Results are still a sign of life."""
    async with open_trapped(telling(tmp_path), {"stats_error": "no"}) as reader:
        before = reader.engine.progress
        with caplog.at_level(logging.ERROR, "actors.engines.trtllm"):
            while not errors(caplog):
                await check_untouched(reader)
        assert len([line for line in errors(caplog) if "statistics" in line]) == 1
        assert reader.engine.progress > before


async def test_polls_that_hang_hold_nobody_up(tmp_path: Path) -> None:
    """They wait in threads of their own."""
    async with open_trapped(telling(tmp_path), {"stats_hang_s": 1.0, "events_hang_s": 1.0}) as reader:
        await check_untouched(reader, begin_neighbour(reader))


async def test_rows_that_make_no_sense_are_passed_over(tmp_path: Path) -> None:
    """Of statistics and of events: what comes behind them is told."""
    engine = Telling()
    rows: list[Any] = [
        {"iter": "seven", "kvCacheStats": 5},
        {},
        stats_row(3, rank=9),
        stats_row(4, kvCacheStats__usedNumBlocks=41),
    ]
    events: list[Any] = [
        engine.stored(11, 12),
        {"event_id": "x", "data": {"type": "stored"}},
        engine.stored(block(99, size=5), parent=12),
        engine.stored(13, parent=12),
    ]
    script = {"dictated_rows": rows, "dictated_events": events}
    async with open_trapped(telling(tmp_path), script) as reader:
        steps = await steps_until(reader, lambda steps: _has_both(events_of(steps)))
        told = [event.block_hashes for event in events_of(steps) if isinstance(event, KvStored)]
        assert [name for names in told for name in names] == [11, 12, 13]
        assert sum(event.count for event in events_of(steps) if isinstance(event, KvMalformed)) == 2
        engine_id = EngineId(10**6)
        reader.engine.submit(engine_id, make_spec(PLAIN, max_tokens=40))
        await steps_until(reader, lambda steps: any(delta.is_last for step in steps for delta in step.deltas))


def _has_both(events: list[KvEvent]) -> bool:
    counts = sum(event.count for event in events if isinstance(event, KvMalformed))
    stored = [name for event in events if isinstance(event, KvStored) for name in event.block_hashes]
    return counts >= 2 and 13 in stored


async def test_hashes_that_are_no_numbers_are_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With what to change; they are counted, and nothing wrong is published."""
    engine = Telling()
    events = [engine.stored(block("ab" * 32)) for _ in range(5)]
    async with open_trapped(telling(tmp_path), {"dictated_events": events}) as reader:
        with caplog.at_level(logging.WARNING, "actors.engines.trtllm"):
            steps = await steps_until(
                reader, lambda steps: any(isinstance(event, KvMalformed) for event in events_of(steps))
            )
        assert not [event for event in events_of(steps) if isinstance(event, KvStored)]
        assert caplog.text.count("v2_sha256_64") == 1
        await check_untouched(reader)


def _completed() -> float:
    """As the library counts it, in the registry of the whole process."""
    name = "trtllm_request_success_total"
    return sum(
        sample.value
        for family in REGISTRY.collect()
        for sample in family.samples
        if sample.name == name and sample.labels.get("model_name") == "traps"
    )


async def test_a_second_engine_of_a_process_has_metrics_too(tmp_path: Path) -> None:
    """Its names are taken in the registry: it goes on with the first one's. A request is counted once."""
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        async with open_trapped(telling(folder, metrics_model="traps")) as reader:
            before = _completed()
            requests = [reader.submit(make_spec(PLAIN, max_tokens=3, n=2)) for _ in range(3)]
            await reader.read_to_end(*requests)
            assert _completed() - before == 6
