"""What the engine tells beside its answers is heard: at rest, after a silence, and of all ranks."""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import anyio
import pytest

from actors.engines.trtllm.answers.collecting import StepCollector
from actors.engines.trtllm.config import TrtllmConfig
from actors.engines.trtllm.figures.polling import PollPace, PollThread
from actors.engines.trtllm.figures.telling import Telling
from actors.engines.trtllm.loading import Loaded
from protocols.engine import EngineInfo
from protocols.steps import EngineStep, KvCleared, KvEvent, KvStored, RankBlocks
from tests.actors.engines.trtllm.kv_telling import BLOCK
from tests.actors.engines.trtllm.kv_telling import Telling as Rows
from tests.actors.engines.trtllm.stats_telling import stats_row
from tests.doubles.threads import join_threads

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.anyio

# Pauses are not what is tested.
PACE = PollPace(rest_s=0.0, idle_s=0.001, failed_s=0.0, silent_s=0.001, most_failures=3)
PATIENCE_S = 10.0
TELLING = "actors.engines.trtllm.figures.telling"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = partial(PollThread[Any], pace=PACE)
    monkeypatch.setattr("actors.engines.trtllm.figures.telling.PollThread", at_once)


class TalkingLLM:
    """Answers polls with what a test has put there, once. failure: raised by those of events."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stats: list[Any] = []
        self._events: list[Any] = []
        self.failure: Exception | None = None

    def tell(self, *, stats: list[Any] | None = None, events: list[Any] | None = None) -> None:
        with self._lock:
            self._stats += stats or []
            self._events += events or []

    def get_stats(self, timeout: float) -> list[Any]:
        with self._lock:
            rows, self._stats = self._stats, []
            return rows

    def get_kv_cache_events(self, timeout: float) -> list[Any]:
        with self._lock:
            if self.failure is not None:
                raise self.failure
            rows, self._events = self._events, []
            return rows


class Desk:
    """An LLM that talks, and the steps that come of it. Nobody asks for any tokens."""

    def __init__(self, folder: Path, ranks: int) -> None:
        self.llm = TalkingLLM()
        self.steps = StepCollector()
        info = EngineInfo(
            model="m",
            context_length=64,
            max_num_seqs=2 * ranks,
            vocab_size=9,
            block_tokens=BLOCK,
            total_blocks=100,
            data_parallel_size=ranks,
        )
        arguments: dict[str, Any] = {
            "enable_iter_perf_stats": True,
            "enable_attention_dp": ranks > 1,
            "tensor_parallel_size": ranks,
            "kv_cache_config": {"event_buffer_max_size": 100, "tokens_per_block": BLOCK},
        }
        config = TrtllmConfig(
            model_path=folder,
            vocab_size=9,
            context_length=64,
            arguments=arguments,
            publishes_kv_events=True,
        )
        assert config.ranks == ranks
        self.telling = Telling(Loaded(cast("Any", None), self.llm, info), config, self.steps)
        self.events: list[KvEvent] = []

    async def next_step(self) -> EngineStep:
        with anyio.fail_after(PATIENCE_S):
            step = await self.steps.next_step(lambda: 0)
        self.events += step.kv_events
        return step

    async def until_told(self, *events: KvEvent) -> None:
        """Until these have come, one after the other; others may come between them."""
        for event in events:
            while event not in self.events:
                await self.next_step()
            del self.events[: self.events.index(event) + 1]


@pytest.fixture(params=[1])
async def desk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Desk]:
    """With one rank, or as many as a test says."""
    opened = Desk(tmp_path, request.param)
    opened.telling.start()
    yield opened
    await opened.telling.stop()
    join_threads("trtllm-stats")
    join_threads("trtllm-events")


def stored(name: int) -> KvStored:
    tokens = tuple((name * BLOCK + place) % 1000 for place in range(BLOCK))
    return KvStored(block_hashes=(name,), token_ids=tokens, block_tokens=BLOCK)


async def test_an_engine_at_rest_shows_what_it_holds_now(desk: Desk) -> None:
    """Its last iteration is told after its last token: figures do not stay as they were in between."""
    desk.llm.tell(stats=[stats_row(1)])
    step = await desk.next_step()
    assert (step.used_blocks, step.is_iteration, step.ranks) == (40, False, ())
    desk.llm.tell(stats=[stats_row(2, kvCacheStats__usedNumBlocks=0)])
    assert (await desk.next_step()).used_blocks == 0


@pytest.mark.parametrize("desk", [2], indirect=True)
async def test_blocks_of_ranks_are_told_one_by_one_and_as_their_sum(desk: Desk) -> None:
    """Each has a pool of its own."""
    desk.llm.tell(stats=[stats_row(1), stats_row(1, rank=1, kvCacheStats__usedNumBlocks=90)])
    step = await desk.next_step()
    assert step.used_blocks == 130
    assert step.ranks == (
        RankBlocks(rank=0, used=40, total=100, hit_rate=0.25),
        RankBlocks(rank=1, used=90, total=100, hit_rate=0.25),
    )


async def test_an_engine_that_was_silent_is_heard_again(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    """Routers forget what they knew, the log has each change once, and what comes afterwards is told."""
    rows = Rows()
    with caplog.at_level(logging.WARNING, TELLING), anyio.fail_after(PATIENCE_S):
        desk.llm.tell(events=[rows.stored(1)])
        await desk.until_told(stored(1))
        desk.llm.failure = ConnectionError("it is busy")
        await desk.until_told(KvCleared())
        desk.llm.failure = None
        desk.llm.tell(events=[rows.stored(2, parent=1)])
        await desk.until_told(KvCleared())
        desk.llm.tell(events=[rows.stored(3)])
        await desk.until_told(stored(3))
    assert [record.getMessage() for record in caplog.records if record.name == TELLING] == [
        "TensorRT-LLM's KV events are not heard (ConnectionError); they are asked for now and then",
        "TensorRT-LLM's KV events are heard again",
    ]
