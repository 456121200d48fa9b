"""Promises about KV events and snapshots through the facade, called as the framework calls it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from protocols.engine import EngineInfo
from protocols.steps import (
    Delta,
    EngineId,
    FinishReason,
    KvCleared,
    KvLost,
    KvMalformed,
    KvStored,
    RankBlocks,
)
from tests.doubles.bridge import in_thread
from tests.doubles.callers import wire_request
from tests.doubles.endpoints import MoodyEndpoint
from tests.doubles.engines import VOCAB_SIZE, ScriptedEngine
from tests.doubles.publishers import GaugesDouble, RouterDouble

if TYPE_CHECKING:
    import pytest

    from protocols.steps import KvEvent
    from tests.service.conftest import OpenWorker
    from tests.service.worker import FacadeWorker


def paged_engine(ranks: int = 1) -> ScriptedEngine:
    """Sixteen blocks of four tokens, for each of the ranks."""
    return ScriptedEngine(
        info=EngineInfo(
            model="double",
            context_length=128,
            max_num_seqs=8,
            vocab_size=VOCAB_SIZE,
            block_tokens=4,
            total_blocks=16,
            data_parallel_size=ranks,
        )
    )


def stored(*hashes: int, rank: int = 0, **changes: Any) -> KvStored:
    facts: dict[str, Any] = {"token_ids": tuple(range(4 * len(hashes))), "block_tokens": 4, **changes}
    return KvStored(block_hashes=hashes, rank=rank, **facts)


def open_routers(worker: FacadeWorker) -> list[RouterDouble]:
    """The framework takes the sources and is ready for each, in a thread of its own."""
    sources: list[Any] = worker.loop.run(worker.facade.kv_event_sources())
    assert [source.dp_rank for source in sources] == list(range(len(sources)))
    routers = [RouterDouble() for _ in sources]
    for source, router in zip(sources, routers, strict=True):
        in_thread(partial(source.on_ready, router))
    worker.loop.call(lambda: None)
    return routers


def step(worker: FacadeWorker, *deltas: Delta, events: tuple[KvEvent, ...] = (), **facts: Any) -> None:
    """The engine makes a step."""
    worker.loop.call(lambda: worker.script.emit(*deltas, kv_events=events, **facts))


def test_routers_hear_of_blocks_before_the_client_hears_of_tokens(open_worker: OpenWorker) -> None:
    """Whoever asks again after his answer finds them known."""
    with open_worker(paged_engine(), publishes_kv_events=True) as worker:
        worker.open()
        (router,) = open_routers(worker)
        call = worker.ask(wire_request())
        worker.until(lambda: worker.script.live)
        end = Delta(EngineId(1), [7], finish_reason=FinishReason.EOS, is_last=True)
        step(worker, end, events=(stored(1, 2),))
        assert call.read_to_end().tokens == [7]
        assert sorted(router.blocks) == [1, 2]
        assert worker.recorder.kv_counts == {"published": 1}


def test_ranks_do_not_mix(open_worker: OpenWorker) -> None:
    """Each has its own source, its own publisher and its own blocks (S14); a rank that is none is counted."""
    with open_worker(paged_engine(ranks=2), publishes_kv_events=True) as worker:
        worker.open()
        routers = open_routers(worker)
        part = stored(13, token_ids=(1, 2))
        step(worker, events=(stored(11, 12), part, stored(13, rank=1), stored(5, rank=2)))
        worker.until(lambda: routers[1].blocks)
        assert [sorted(router.blocks) for router in routers] == [[11, 12], [13]]
        assert worker.recorder.kv_counts == {"published": 2, "malformed": 2}


def test_what_an_engine_lost_is_counted_and_what_it_forgot_is_taken_back(open_worker: OpenWorker) -> None:
    """A gap, nonsense and an emptied cache of one rank leave the other alone."""
    with open_worker(paged_engine(ranks=2), publishes_kv_events=True) as worker:
        worker.open()
        routers = open_routers(worker)
        step(worker, events=(stored(1), stored(1, rank=1), KvLost(count=4, rank=1), KvMalformed(count=2)))
        step(worker, events=(KvCleared(rank=0), KvLost(count=1, rank=2)))
        worker.until(lambda: routers[1].blocks and not routers[0].blocks)
        assert worker.recorder.kv_counts == {"published": 3, "lost": 4, "malformed": 3}


def test_each_rank_has_gauges_of_its_own(open_worker: OpenWorker) -> None:
    """They are there from the start; a rank that was not announced gets none."""
    with open_worker(paged_engine(ranks=2), publishes_kv_events=True) as worker:
        worker.open()
        assert worker.facade.component_metrics_dp_ranks() == [0, 1]
        gauges = GaugesDouble()
        in_thread(lambda: worker.facade.attach_snapshot_publisher(gauges))
        worker.until(lambda: len(gauges.snapshots) == 2)
        told = (
            RankBlocks(rank=0, used=4, total=16, hit_rate=0.5),
            RankBlocks(rank=1, used=8, total=32),
            RankBlocks(rank=2, used=1, total=1),
        )
        worker.recorder.cache_hit_rate = 0.25
        step(worker, used_blocks=12, ranks=told)
        step(worker, used_blocks=12, ranks=told)
        worker.until(lambda: len(gauges.snapshots) == 4)
        last = dict(gauges.snapshots)
        assert last.keys() == {0, 1}
        assert (last[0].kv_used_blocks, last[0].gpu_cache_usage, last[0].kv_cache_hit_rate) == (4, 0.25, 0.5)
        assert (last[1].kv_used_blocks, last[1].gpu_cache_usage, last[1].kv_cache_hit_rate) == (8, 0.25, 0.25)
        assert (last[1].kv_total_blocks, last[1].dp_rank) == (32, 1)


def test_nobody_is_told_who_did_not_ask(open_worker: OpenWorker) -> None:
    """Without the option, and with an engine that has no paged cache, there are no sources and no gauges."""
    for engine, is_wanted in ((paged_engine(), False), (ScriptedEngine(), True)):
        with open_worker(engine, publishes_kv_events=is_wanted) as worker:
            worker.open()
            assert worker.loop.run(worker.facade.kv_event_sources()) == []
            assert worker.facade.component_metrics_dp_ranks() == []
            worker.facade.attach_snapshot_publisher(GaugesDouble())
            step(worker, events=(stored(1),), used_blocks=3)
            worker.settle_engine()


def test_a_publisher_that_raises_harms_no_request(open_worker: OpenWorker) -> None:
    """Nor does an event that is nonsense, nor a gauge that is broken."""
    with open_worker(paged_engine(), publishes_kv_events=True) as worker:
        worker.open()
        (router,) = open_routers(worker)
        gauges = GaugesDouble()
        worker.facade.attach_snapshot_publisher(gauges)
        router.mood = gauges.mood = RuntimeError("the event plane is gone")
        call = worker.ask(wire_request())
        worker.until(lambda: worker.script.live)
        nonsense: Any = "no event"
        step(worker, Delta(EngineId(1), [7]), events=(stored(1),))
        step(worker, Delta(EngineId(1), [8]), events=(nonsense, stored(2)))
        worker.finish(1)
        assert call.read_to_end().tokens == [7, 8]
        assert worker.recorder.kv_counts["failed"] == 1
        assert worker.recorder.kv_counts["malformed"] == 1


def test_nothing_is_told_after_the_end(open_worker: OpenWorker) -> None:
    """Late calls of the framework's threads are harmless, too."""
    with open_worker(paged_engine(), publishes_kv_events=True) as worker:
        worker.open()
        (router,) = open_routers(worker)
        sources: list[Any] = worker.loop.run(worker.facade.kv_event_sources())
        worker.cleanup()
        kv = worker.facade.kv
        worker.loop.call(lambda: kv.step_made(_step(stored(1))))
        in_thread(lambda: sources[0].on_ready(router))
        gauges = GaugesDouble()
        in_thread(lambda: worker.facade.attach_snapshot_publisher(gauges))
        worker.loop.call(kv.forgotten)
        assert not router.batches
        assert not gauges.snapshots


def test_a_worker_that_comes_back_tells_everything_again(open_worker: OpenWorker) -> None:
    """Drained by hand it left discovery, and routers forgot it; after resume they know what it has."""
    with open_worker(paged_engine(), publishes_kv_events=True) as worker:
        worker.open()
        (router,) = open_routers(worker)
        step(worker, events=(stored(1, 2), stored(3, parent_hash=1)))
        worker.until(lambda: len(router.blocks) == 3)
        worker.control("drain")
        router.forget()
        worker.control("resume")
        assert sorted(router.blocks) == [1, 2, 3]


def test_a_worker_that_comes_back_late_tells_everything_then(
    open_worker: OpenWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store was down at the resume: routers know nothing of us until it is back, and everything then."""
    monkeypatch.setattr("service.discovery.RETRY_S", 0.01)
    with open_worker(paged_engine(), publishes_kv_events=True) as worker:
        worker.open()
        store = MoodyEndpoint(worker.events)
        worker.loop.run(worker.facade.on_endpoint_ready(store))
        (router,) = open_routers(worker)
        step(worker, events=(stored(1, 2),))
        worker.until(lambda: len(router.blocks) == 2)
        worker.control("drain")
        router.forget()
        store.is_down = True
        worker.control("resume")
        assert not router.blocks
        store.is_down = False
        worker.until(lambda: sorted(router.blocks) == [1, 2])


def test_gauges_show_the_last_state_and_not_every_step(open_worker: OpenWorker) -> None:
    """A burst of steps is one snapshot; nothing changed is nothing said."""
    with open_worker(paged_engine(), publishes_kv_events=True) as worker:
        worker.open()
        assert worker.facade.component_metrics_dp_ranks() == [0]
        gauges = GaugesDouble()
        in_thread(lambda: worker.facade.attach_snapshot_publisher(gauges))
        worker.until(lambda: gauges.snapshots)
        worker.recorder.cache_hit_rate = 0.25

        def burst() -> None:
            for used in range(1, 9):
                worker.script.emit(used_blocks=used)

        worker.loop.call(burst)
        worker.until(lambda: gauges.snapshots[-1][1].kv_used_blocks == 8)
        told = [(rank, snapshot.kv_used_blocks) for rank, snapshot in gauges.snapshots]
        assert told[0] == (0, 0)
        assert len(told) < 8
        last = gauges.snapshots[-1][1]
        assert (last.kv_total_blocks, last.gpu_cache_usage, last.dp_rank) == (16, 0.5, 0)
        assert last.kv_cache_hit_rate == 0.25
        assert gauges.snapshots[0][1].kv_cache_hit_rate is None


def _step(*events: KvEvent) -> Any:
    from protocols.steps import EngineStep

    return EngineStep([], 0.0, 0.0, kv_events=events)
