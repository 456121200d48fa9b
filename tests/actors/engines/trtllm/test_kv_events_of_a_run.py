"""Promises about events, statistics and times of a running LLM, the double's, polled as the driver polls."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

from actors.engines.trtllm.answers.timing import timing_of
from actors.engines.trtllm.figures.kv_events import KvEventReader
from actors.engines.trtllm.figures.polling import Hearing, PollPace, PollThread
from actors.engines.trtllm.figures.stats import EngineState, StatsReader
from protocols.steps import KvLost, KvMalformed, KvStored
from tests.actors.engines.torch.tiny_models import make_model, save
from tests.actors.engines.trtllm.kv_telling import StrictRouter
from tests.doubles.threads import join_threads
from tests.doubles.trtllm_llms import ask, open_llm, read, write_folder
from tests.doubles.trtllm_site import double_on_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from protocols.steps import KvEvent

# The engine's processes import torch and transformers.
pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

NAME, BLOCK, RANKS = "poll-of-a-run", 16, 2
# The polls wait in the engine; the pauses are not what is tested.
PACE = PollPace(rest_s=0.0, idle_s=0.0, failed_s=0.0, silent_s=0.01, most_failures=3)
PATIENCE_S, WAIT_S = 30.0, 0.05


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Whatever becomes of the engine."""
    yield
    join_threads(NAME)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real one, so that there is a cache."""
    return save(make_model("llama"), tmp_path_factory.mktemp("tiny"))


def llm_of(model: Path, **script: object) -> Any:
    return open_llm(
        model,
        script,
        environ={"DOUBLE_GPUS": str(RANKS)},
        tensor_parallel_size=RANKS,
        enable_attention_dp=True,
        max_batch_size=4,
        kv_cache_config={"tokens_per_block": BLOCK, "event_buffer_max_size": 1000},
        enable_iter_perf_stats=True,
        return_perf_metrics=True,
    )


@pytest.fixture(scope="module")
def llm(model: Path) -> Iterator[Any]:
    """One for those who need nothing to go wrong; it moves blocks to the host's memory."""
    with double_on_path(), llm_of(model, offloads_blocks=True) as opened:
        yield opened


def on(rank: int) -> Any:
    """A strict wish for a rank."""
    api = import_module("tensorrt_llm.llmapi")
    return api.SchedulingParams(attention_dp_rank=rank, attention_dp_relax=False)


class Routers:
    """What the loop hears of the events, and a router for each rank."""

    def __init__(self, llm: Any) -> None:
        self._news = asyncio.Event()
        self.events: list[KvEvent] = []
        self.said: list[Hearing] = []
        self.ranks = [StrictRouter(BLOCK) for _ in range(RANKS)]
        self.reader = KvEventReader(BLOCK, RANKS)

        def poll() -> list[KvEvent]:
            return self.reader.read(llm.get_kv_cache_events(timeout=WAIT_S))

        self.thread = PollThread(NAME, poll, self._hear, self._note, PACE)

    def _hear(self, events: list[KvEvent]) -> None:
        self.events += events
        for event in events:
            self.ranks[event.rank].hear(event)
        self._news.set()

    def _note(self, hearing: Hearing, _cause: BaseException | None) -> None:
        self.said.append(hearing)
        self._news.set()

    async def until(self, is_so: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():
                self._news.clear()
                await self._news.wait()

    def told(self, rank: int) -> list[tuple[int, ...]]:
        return [event.token_ids for event in self.of(KvStored, rank)]

    def of(self, kind: type[Any], rank: int = 0) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind) and event.rank == rank]


async def test_routers_hear_of_both_ranks_what_lies_there(llm: Any) -> None:
    """Full blocks of the prompts, whole chains, each rank its own; nothing of the last parts of answers."""
    prompt = list(range(20, 60))
    routers = Routers(llm)
    routers.thread.start()
    for rank, first in ((0, 1), (1, 2), (1, 1)):
        assert (await read(ask(llm, [first, *prompt], scheduling_params=on(rank)))).error is None
    shared = (1, *prompt)[: 2 * BLOCK]
    await routers.until(lambda: shared in routers.told(0) and shared in routers.told(1))
    assert await routers.thread.stop()
    assert (2, *prompt)[: 2 * BLOCK] in routers.told(1)
    # What both have has one name.
    assert routers.ranks[0].names & routers.ranks[1].names
    assert [kind for kind in (KvLost, KvMalformed) if any(routers.of(kind, rank) for rank in (0, 1))] == []
    assert routers.said == []


async def test_events_that_the_engine_had_no_room_for_are_missed(model: Path) -> None:
    """In their rank, and so many; what follows is told."""
    with double_on_path(), llm_of(model, event_gap_after=3, event_gap=4, hides_partial_blocks=True) as llm:
        routers = Routers(llm)
        routers.thread.start()
        for first in (1, 2, 3, 4):
            await read(ask(llm, [first, *range(20, 60)], scheduling_params=on(1)))
        await routers.until(lambda: routers.of(KvLost, 1))
        assert await routers.thread.stop()
    assert [event.count for event in routers.of(KvLost, 1)] == [4]
    assert routers.of(KvLost, 0) == []


async def test_statistics_and_times_of_requests(llm: Any) -> None:
    """Both ranks, their blocks, and what the engine measured of a request."""
    states: list[EngineState] = []
    came, said = asyncio.Event(), list[Hearing]()

    def hear(state: EngineState) -> None:
        states.append(state)
        came.set()

    reader = StatsReader(RANKS)

    def note(hearing: Hearing, _cause: BaseException | None) -> None:
        said.append(hearing)

    thread = PollThread(NAME, lambda: reader.read(llm.get_stats(timeout=WAIT_S)), hear, note, PACE)
    thread.start()
    seen = [
        await read(ask(llm, [5 + rank, *range(20, 60)], scheduling_params=on(rank))) for rank in range(RANKS)
    ]
    async with asyncio.timeout(PATIENCE_S):
        while not states or len(states[-1].ranks) < RANKS:
            came.clear()
            await came.wait()
    assert await thread.stop()
    last = states[-1]
    assert [blocks.rank for blocks in last.ranks] == [0, 1]
    assert all(blocks.total > 0 for blocks in last.ranks)
    assert last.iterations_seen > RANKS
    assert (reader.malformed, said) == (0, [])
    for each in seen:
        timing = timing_of(each.result.outputs[0])
        assert timing is not None
        assert None not in (timing.queued_s, timing.prefill_s, timing.decode_s)


@pytest.mark.parametrize(
    ("call", "script"),
    [("get_stats", {"stats_error": "no"}), ("get_kv_cache_events", {"events_error": "no"})],
)
async def test_an_engine_that_refuses_to_answer_is_told_of(
    tmp_path: Path, call: str, script: dict[str, object]
) -> None:
    """After so many tries, once; and asked on."""
    silent: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

    def note(hearing: Hearing, cause: BaseException | None) -> None:
        assert hearing is Hearing.SILENT
        silent.set_result(cause)

    with double_on_path(), open_llm(write_folder(tmp_path), script) as llm:
        poll: Callable[[], Any] = lambda: getattr(llm, call)(timeout=0.0)  # noqa: E731 - a call with its name
        thread = PollThread(NAME, poll, lambda _: None, note, PACE)
        thread.start()
        async with asyncio.timeout(PATIENCE_S):
            assert str(await silent) == "no"
        assert await thread.stop()
    assert thread.failures >= PACE.most_failures
