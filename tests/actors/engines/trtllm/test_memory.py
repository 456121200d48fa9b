"""Sleep and wake of TensorRT-LLM: what counts as asleep, whatever becomes of a call."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.engines.trtllm.config import TrtllmConfig
from actors.engines.trtllm.life.memory import TrtllmMaintenance
from actors.engines.trtllm.life.memory_rules import MEMORIES, MemoryRules
from protocols.errors import MaintenanceFailed
from tests.doubles.threads import join_threads

ABLE: dict[str, Any] = {"sleep_config": {}, "kv_cache_config": {"enable_block_reuse": False}}
KV, WEIGHTS = ("kv_cache",), ("model_weights",)
PATIENCE_S = 10.0


def rules(**arguments: Any) -> MemoryRules:
    """Of these arguments, on top of those with which everything can sleep."""
    config = TrtllmConfig(
        model_path=Path("model"), vocab_size=8, context_length=8, arguments=ABLE | arguments
    )
    return MemoryRules.of(config)


class RemoteMemory:
    """An LLM whose memory is in another process: a call may fail before, amid, or after its work."""

    def __init__(self) -> None:
        self.gone: set[str] = set()
        self.calls: list[tuple[str, list[str]]] = []
        self.threads: set[int] = set()
        # How many of a call's memories are done before it raises this; None: it does all of it.
        self.error: Exception | None = None
        self.done_before_error = 0
        self.may_return = threading.Event()
        self.may_return.set()
        self.called = threading.Event()

    def _collective_rpc(self, method: str, args: tuple[list[str]]) -> list[None]:
        (tags,) = args
        self.calls.append((method, tags))
        self.threads.add(threading.get_ident())
        self.called.set()
        assert self.may_return.wait(PATIENCE_S)
        done = tags if self.error is None else tags[: self.done_before_error]
        if method == "sleep":
            self.gone.update(done)
        else:
            self.gone.difference_update(done)
        if self.error is not None:
            raise self.error
        return [None]


class World:
    """A maintenance around such an LLM, and how often it said that the cache is lost."""

    def __init__(self, found: MemoryRules | None = None, call_s: float = PATIENCE_S) -> None:
        self.llm: Any = RemoteMemory()
        self.lost = 0
        self.maintenance = TrtllmMaintenance(
            lambda: self.llm, rules() if found is None else found, self._on_lost, call_s
        )

    def _on_lost(self) -> None:
        self.lost += 1

    def fail(self, error: Exception, done: int) -> None:
        """The next call raises this when so many of its memories are done."""
        self.llm.error, self.llm.done_before_error = error, done

    def mend(self) -> None:
        self.llm.error = None


def run(work: Coroutine[Any, Any, None]) -> None:
    """In a loop of its own."""
    asyncio.run(work)
    join_threads("trtllm-memory")


def test_all_of_the_librarys_names_are_offered() -> None:
    """The operator's words are those of the library, the cache first."""
    assert World().maintenance.memories == MEMORIES
    assert len(set(MEMORIES)) == 13


def test_what_was_given_back_is_taken_again() -> None:
    """One call each way, in a thread, with one list of names."""
    world = World()

    async def both() -> None:
        await world.maintenance.sleep((*WEIGHTS, *KV))
        assert world.maintenance.asleep == world.llm.gone == {*KV, *WEIGHTS}
        await world.maintenance.wake()
        assert world.maintenance.asleep == world.llm.gone == set()

    run(both())
    tags = ["kv_cache", "model_weights"]
    assert world.llm.calls == [("sleep", tags), ("wakeup", tags)]
    assert threading.get_ident() not in world.llm.threads


def test_what_sleeps_already_is_not_asked_for_twice() -> None:
    """More memory may follow; a worker that is awake has nothing to wake."""
    world = World()

    async def more() -> None:
        await world.maintenance.wake()
        await world.maintenance.sleep(KV)
        await world.maintenance.sleep(KV)
        await world.maintenance.sleep((*KV, *WEIGHTS))

    run(more())
    assert world.llm.calls == [("sleep", ["kv_cache"]), ("sleep", ["model_weights"])]


@pytest.mark.parametrize("done", [0, 1, 2])
def test_after_a_sleep_that_failed_half_way_wake_takes_all_of_it_back(done: int) -> None:
    """Nobody knows how far it came, so all of it counts as asleep."""
    world = World()
    world.fail(RuntimeError("rank 3\nTraceback: ..."), done)

    async def fail() -> None:
        with pytest.raises(MaintenanceFailed, match=r"^sleep: RuntimeError: rank 3$"):
            await world.maintenance.sleep((*KV, *WEIGHTS))
        assert world.maintenance.asleep == {*KV, *WEIGHTS}
        world.mend()
        await world.maintenance.wake()

    run(fail())
    assert world.maintenance.asleep == world.llm.gone == set()


def test_a_wake_that_failed_leaves_everything_asleep_and_may_be_tried_again() -> None:
    """What the first try took back is taken back once more."""
    world = World()

    async def fail() -> None:
        await world.maintenance.sleep((*KV, *WEIGHTS))
        world.fail(RuntimeError("no memory"), 1)
        with pytest.raises(MaintenanceFailed, match=r"^wakeup: RuntimeError: no memory$"):
            await world.maintenance.wake()
        assert world.maintenance.asleep == {*KV, *WEIGHTS}
        world.mend()
        await world.maintenance.wake()

    run(fail())
    assert world.maintenance.asleep == world.llm.gone == set()


def test_a_call_that_hangs_is_left_behind_and_no_other_is_made_beside_it() -> None:
    """Its memory counts as asleep; once it has come back, wake works."""
    world = World(call_s=0.05)
    world.llm.may_return.clear()

    async def hang() -> None:
        with pytest.raises(MaintenanceFailed, match="no answer within"):
            await world.maintenance.sleep(KV)
        with pytest.raises(MaintenanceFailed, match="has not come back"):
            await world.maintenance.wake()
        assert len(world.llm.calls) == 1
        assert world.maintenance.asleep == {*KV}
        world.llm.may_return.set()
        await asyncio.to_thread(join_threads, "trtllm-memory")
        await world.maintenance.wake()

    run(hang())
    assert world.maintenance.asleep == world.llm.gone == set()


def test_a_call_whose_caller_is_cancelled_counts_as_asleep() -> None:
    """The library does not hear of it and goes on."""
    world = World()
    world.llm.may_return.clear()

    async def cancel() -> None:
        sleeping = asyncio.create_task(world.maintenance.sleep(KV))
        await asyncio.to_thread(world.llm.called.wait, PATIENCE_S)
        sleeping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sleeping
        assert world.maintenance.asleep == {*KV}
        world.llm.may_return.set()

    run(cancel())
    assert world.lost == 1


@pytest.mark.parametrize("is_failing", [True, False])
def test_a_lost_cache_is_told_even_by_a_sleep_that_fails(is_failing: bool) -> None:
    """Who routes by it must not send anybody here for what is gone."""
    world = World()

    async def lose() -> None:
        if is_failing:
            world.fail(RuntimeError("rank 1"), 0)
            with pytest.raises(MaintenanceFailed):
                await world.maintenance.sleep(KV)
        else:
            await world.maintenance.sleep(KV)

    run(lose())
    assert world.lost == 1


@pytest.mark.parametrize("memories", [KV, WEIGHTS])
def test_a_cache_that_is_kept_is_not_told(memories: tuple[str, ...]) -> None:
    """The host keeps its content, or it was not given back at all."""
    world = World(rules(sleep_config={"restore_modes": {"kv_cache": "PINNED"}}))
    run(world.maintenance.sleep(memories))
    assert world.lost == 0


@pytest.mark.parametrize("llm", [None, object()])
def test_an_engine_without_the_call_is_refused_by_name(llm: object) -> None:
    """Ray's executors of some releases, and an engine that is not loaded."""
    world = World()
    world.llm = llm
    with pytest.raises(MaintenanceFailed, match="_collective_rpc"):
        world.maintenance.check(KV)


def test_an_engine_that_went_meanwhile_leaves_its_memory_asleep() -> None:
    """A worker that stops while it sleeps wakes nobody."""
    world = World()

    async def stop() -> None:
        await world.maintenance.sleep(KV)
        world.llm = None
        with pytest.raises(MaintenanceFailed, match="gone"):
            await world.maintenance.wake()

    run(stop())
    assert world.maintenance.asleep == {*KV}


_FATES = st.sampled_from(["works", "fails", "fails after one", "fails at its end"])
_STEPS = st.lists(st.tuples(st.lists(st.sampled_from(MEMORIES), max_size=3), _FATES), max_size=12)


@given(_STEPS)
def test_what_is_gone_always_counts_as_asleep(steps: list[tuple[list[str], str]]) -> None:
    """Over any sequence of calls that work, fail or fail half way; a wake that works brings all back.

    A step without memories is a wake.
    """
    world = World()

    async def play() -> None:
        for memories, fate in steps:
            world.fail(RuntimeError("no"), {"fails": 0, "fails after one": 1}.get(fate, 13))
            if fate == "works":
                world.mend()
            call = world.maintenance.sleep(tuple(memories)) if memories else world.maintenance.wake()
            try:
                await call
            except MaintenanceFailed:
                assert fate != "works"
            else:
                assert fate != "works" or memories or not world.maintenance.asleep
            assert world.llm.gone <= world.maintenance.asleep
        world.mend()
        await world.maintenance.wake()

    asyncio.run(play())
    assert world.maintenance.asleep == world.llm.gone == set()
