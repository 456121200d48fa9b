"""Promises of the double's polls and calls: statistics, cache events, capacity, sleep and wakeup."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.doubles.trtllm_facts import read_facts, unknown_keys
from tests.doubles.trtllm_llms import CONTEXT, ask, open_llm, read, write_folder
from tests.doubles.trtllm_site import double_on_path

if TYPE_CHECKING:
    from tensorrt_llm import LLM

pytestmark = pytest.mark.anyio

BLOCK = 4


@pytest.fixture
def anyio_backend() -> str:
    """The library knows no other."""
    return "asyncio"


@pytest.fixture(autouse=True, scope="module")
def _double() -> Iterator[None]:
    with double_on_path():
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def llm(model: Path) -> Iterator[LLM]:
    """One for the module, with everything on that a poll needs."""
    with open_llm(
        model,
        {"event_gap_after": 3, "event_gap": 5},
        max_batch_size=8,
        enable_iter_perf_stats=True,
        enable_iter_req_stats=True,
        kv_cache_config={"tokens_per_block": BLOCK, "event_buffer_max_size": 100},
    ) as opened:
        yield opened


async def test_a_poll_takes_what_is_there(llm: LLM) -> None:
    """One row a step, and nothing the second time."""
    llm.get_stats(0.0)
    await read(ask(llm, [5], max_tokens=3))
    rows: list[Any] = await asyncio.to_thread(llm.get_stats, 0.5)
    assert len(rows) == 3
    assert [row["iter"] for row in rows] == list(range(rows[0]["iter"], rows[0]["iter"] + 3))
    assert llm.get_stats(0.0) == []


async def test_a_row_has_the_keys_of_the_facts(llm: LLM) -> None:
    """And no others; it can be written as JSON."""
    llm.get_stats(0.0)
    await read(ask(llm, [5], max_tokens=1))
    (row,) = json.loads(json.dumps(llm.get_stats(0.5)))
    assert list(unknown_keys(row, read_facts()["row"])) == []
    assert row["numActiveRequests"] == len(row["requestStats"])
    assert row["kvCacheStats"]["maxNumBlocks"] == 8 * CONTEXT // BLOCK


async def test_events_have_the_keys_of_the_facts(model: Path) -> None:
    """Of all four kinds; also one that moves to another memory."""
    shapes = read_facts()["events"]
    with open_llm(model, kv_cache_config={"tokens_per_block": BLOCK, "event_buffer_max_size": 100}) as llm:
        for prompt in range(10):
            await read(ask(llm, [prompt], max_tokens=2))
        rows: list[Any] = json.loads(json.dumps(llm.get_kv_cache_events(0.5)))
        assert [key for row in rows for key in unknown_keys(row, shapes[row["data"]["type"]])] == []


async def test_the_streams_are_one_for_the_life_of_an_llm(model: Path) -> None:
    """They end when nothing comes for a while, and go on with the next request."""
    with open_llm(model, enable_iter_perf_stats=True) as llm:
        await read(ask(llm, [5], max_tokens=2))
        stream = llm.get_stats_async(0.05)
        assert [row async for row in stream]
        assert [row async for row in stream] == []
        await read(ask(llm, [5], max_tokens=2))
        assert llm.get_stats_async(0.05) is stream
        assert [row async for row in stream]


async def test_events_begin_with_what_there_is_room_for(model: Path) -> None:
    """Then the partly filled block of each answer; without ranks no event names one."""
    cache = {"tokens_per_block": BLOCK, "event_buffer_max_size": 100}
    with open_llm(model, max_batch_size=8, kv_cache_config=cache) as llm:
        await read(ask(llm, [5], max_tokens=2))
        created, stored = llm.get_kv_cache_events(0.5)
        assert created == {
            "event_id": 0,
            "data": {"type": "created", "num_blocks_per_cache_level": [8 * CONTEXT // BLOCK, 0]},
            "window_size": CONTEXT,
        }
        data: Any = stored["data"]
        assert [each["token_id"] for each in data["blocks"][0]["tokens"]] == [5, 1000]
        assert (data["parent_hash"], stored["event_id"]) == (None, 1)
        assert "attention_dp_rank" not in stored


async def test_the_oldest_events_are_dropped(model: Path) -> None:
    """When nobody fetches them; their ids are missing then."""
    with open_llm(model, kv_cache_config={"tokens_per_block": BLOCK, "event_buffer_max_size": 3}) as llm:
        for prompt in range(10):
            await read(ask(llm, [prompt], max_tokens=2))
        rows = llm.get_kv_cache_events(0.5)
        assert len(rows) == 3
        first: Any = rows[0]["event_id"]
        assert first > 0


async def test_ids_can_be_left_out(llm: LLM) -> None:
    """Where the script says so, and so many."""
    for prompt in range(6):
        await read(ask(llm, [60 + prompt], max_tokens=2))
    ids: list[Any] = [row["event_id"] for row in llm.get_kv_cache_events(0.5)]
    steps = [after - before for before, after in itertools.pairwise(ids)]
    assert sorted(steps)[-1] == 6
    assert set(steps) == {1, 6}


async def test_answers_can_be_dictated(model: Path) -> None:
    """They come first, as they stand in the script, whether or not anybody could know them."""
    script = {"dictated_rows": [{"iter": "no number"}], "dictated_events": [{"event_id": 7, "data": {}}]}
    cache = {"event_buffer_max_size": 10}
    with open_llm(model, script, enable_iter_perf_stats=True, kv_cache_config=cache) as llm:
        assert llm.get_stats(0.5) == script["dictated_rows"]
        assert llm.get_kv_cache_events(0.5)[:1] == script["dictated_events"]


async def test_other_caches_speak_differently(model: Path) -> None:
    """Of several windows, and of hashes that are no numbers."""
    script = {"has_hash_texts": True, "also_window": 32}
    with open_llm(model, script, kv_cache_config={"event_buffer_max_size": 100}) as llm:
        await read(ask(llm, [5], max_tokens=2))
        rows: list[Any] = llm.get_kv_cache_events(0.5)
        assert [row["window_size"] for row in rows] == [CONTEXT, 32, CONTEXT, 32]
        assert isinstance(rows[2]["data"]["blocks"][0]["block_hash"], str)


async def test_partial_blocks_are_removed_again(model: Path) -> None:
    """Each that was stored, once there are more."""
    with open_llm(model, kv_cache_config={"tokens_per_block": BLOCK, "event_buffer_max_size": 100}) as llm:
        for prompt in range(10):
            await read(ask(llm, [prompt], max_tokens=2))
        rows: list[Any] = llm.get_kv_cache_events(0.5)
        stored = [row["data"]["blocks"][0]["block_hash"] for row in rows if row["data"]["type"] == "stored"]
        removed = [row["data"]["block_hashes"][0] for row in rows if row["data"]["type"] == "removed"]
        assert removed
        assert stored[: len(removed)] == removed


@pytest.mark.parametrize("cache", [{}, {"event_buffer_max_size": 10, "enable_block_reuse": False}])
async def test_events_need_a_buffer_and_reuse(model: Path, cache: dict[str, Any]) -> None:
    """Otherwise there are none, and statistics need their own switch."""
    with open_llm(model, kv_cache_config=cache) as llm:
        await read(ask(llm, [5], max_tokens=2))
        assert llm.get_kv_cache_events(0.0) == []
        assert llm.get_stats(0.0) == []


def test_the_capacity_is_the_primary_pools(llm: LLM) -> None:
    """In blocks and tokens."""
    assert llm.get_kv_cache_capacity() == {
        "maxNumBlocks": 8 * CONTEXT // BLOCK,
        "tokensPerBlock": BLOCK,
        "maxNumTokens": 8 * CONTEXT,
    }


def test_without_a_transceiver_there_is_nothing_to_tell(llm: LLM) -> None:
    """The answer is kept."""
    assert llm.disaggregated_params == {}
    assert llm.disaggregated_params is llm.disaggregated_params


def test_a_poll_may_hang(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps the thread that asks."""
    slept: list[float] = []
    with open_llm(model, {"stats_hang_s": 70.0, "events_hang_s": 80.0}) as llm:
        monkeypatch.setattr(time, "sleep", slept.append)
        llm.get_stats(0.0)
        llm.get_kv_cache_events(0.0)
        monkeypatch.undo()
    assert {70.0, 80.0} <= set(slept)


def test_events_of_a_dead_engine_are_none_and_statistics_an_error(model: Path) -> None:
    """Of the call, which is no error of the runtime."""
    from tensorrt_llm._double.calls import RPCError

    with open_llm(model) as llm:
        executor: Any = llm._executor
        executor._process.kill()
        executor._process.exited.exception()
        assert llm.get_kv_cache_events(0.0) == []
        with pytest.raises(RPCError):
            llm.get_stats(0.0)
        assert not issubclass(RPCError, RuntimeError)


def test_calls_reach_the_first_rank_only(model: Path) -> None:
    """Unless they reach all by themselves; what nobody knows is an error over there."""
    from tensorrt_llm._double.calls import RPCError

    with open_llm(model, environ={"DOUBLE_GPUS": "2"}, tensor_parallel_size=2, sleep_config={}) as llm:
        with pytest.raises(NotImplementedError):
            llm._collective_rpc("update_weights")
        with pytest.raises(NotImplementedError):
            llm._collective_rpc("sleep", (["kv_cache"],), unique_reply_rank=0)
        assert llm._collective_rpc("sleep", (["kv_cache"],)) == [None]
    with open_llm(model) as llm, pytest.raises(RPCError, match="update_weights"):
        llm._collective_rpc("update_weights")


@pytest.mark.parametrize("args", [(["no_such_tag"],), ("kv_cache",), (["kv_cache"], ["model"])])
def test_sleep_takes_one_list_of_tags(model: Path, args: tuple[Any, ...]) -> None:
    """Known ones."""
    from tensorrt_llm._double.calls import RPCError

    with open_llm(model, sleep_config={}) as llm, pytest.raises(RPCError):
        llm._collective_rpc("sleep", args)


def test_sleep_needs_its_configuration(model: Path) -> None:
    """Its absence is an error over there."""
    from tensorrt_llm._double.calls import RPCError

    with open_llm(model) as llm, pytest.raises(RPCError, match="sleep_config"):
        llm._collective_rpc("sleep", (["kv_cache"],))


async def test_a_call_need_not_block(model: Path) -> None:
    """Then it gives what will have the answer; here when the request is over."""
    with open_llm(model, sleep_config={}) as llm:
        running = asyncio.create_task(read(ask(llm, [5], max_tokens=20)))
        await asyncio.sleep(0)
        [answer] = llm._collective_rpc("sleep", (["kv_cache"],), non_block=True)
        assert isinstance(answer, Future)
        assert not answer.done()
        await asyncio.wrap_future(answer)
        assert (await running).reasons == ["length"]


async def test_who_asks_a_sleeping_engine_loses_everything(model: Path) -> None:
    """Nothing stops the request; the device does."""
    with open_llm(model, sleep_config={}) as llm:
        llm._collective_rpc("sleep", (["kv_cache", "model_weights"],))
        llm._collective_rpc("wakeup", (["kv_cache"],))
        seen = await read(ask(llm, [5]))
        assert "illegal memory access" in str(seen.error)
        executor: Any = llm._executor
        await asyncio.to_thread(executor._process.exited.exception)
        assert not llm._check_health()


async def test_sleep_can_fail_half_way(model: Path) -> None:
    """What was given up stays away until it is taken back; the next attempt succeeds."""
    from tensorrt_llm._double.calls import RPCError

    script = {"sleep_fails_at": "model_weights", "wakeup_fails_at": "kv_cache"}
    with open_llm(model, script, sleep_config={}) as llm:
        with pytest.raises(RPCError, match="ranks"):
            llm._collective_rpc("sleep", (["kv_cache", "model_weights"],))
        with pytest.raises(RPCError, match="ranks"):
            llm._collective_rpc("wakeup", (["kv_cache"],))
        llm._collective_rpc("wakeup", (["kv_cache"],))
        assert (await read(ask(llm, [5], max_tokens=1))).error is None
