"""The whole driver: what it hands on from one of its parts to another."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from actors.engines.trtllm import TrtllmConfig, TrtllmEngine
from protocols.spec import Stage
from protocols.steps import Delta, EngineId, FinishReason

PREFILL = TrtllmConfig(model_path=Path("m"), vocab_size=100, context_length=64, role=Stage.PREFILL)
READ = SimpleNamespace(
    kv_cache_transfer_start=timedelta(seconds=5), kv_cache_transfer_end=timedelta(seconds=6)
)
UNREAD = SimpleNamespace(kv_cache_transfer_start=timedelta(), kv_cache_transfer_end=timedelta())


def result(timing: object) -> Any:
    """Of a prefill, as the library measured it."""
    metrics = None if timing is None else SimpleNamespace(timing_metrics=timing)
    return SimpleNamespace(outputs=[SimpleNamespace(request_perf_metrics=metrics)])


@pytest.mark.parametrize(("timing", "pending"), [(READ, 0), (UNREAD, 1), (None, 1)])
def test_a_cache_that_the_engine_says_was_read_keeps_no_worker(timing: object, pending: int) -> None:
    """Every other one does, until its time is up: it may still be under way."""
    engine = TrtllmEngine(PREFILL)
    last = Delta(EngineId(1), [5], is_last=True, finish_reason=FinishReason.LENGTH, handoff={"opaque": 1})
    engine._finished(last, result(timing))
    assert engine.pending_transfers == pending


def test_a_prefill_that_handed_nothing_over_keeps_no_worker() -> None:
    """Its caller gave up before."""
    engine = TrtllmEngine(PREFILL)
    last = Delta(EngineId(1), [], is_last=True, finish_reason=FinishReason.CANCELLED)
    engine._finished(last, result(UNREAD))
    assert engine.pending_transfers == 0


@pytest.mark.parametrize(("inside", "running"), [(0, 0), (3, 3), (9, 4)])
def test_what_waits_inside_of_the_engine_is_not_running(inside: int, running: int) -> None:
    """It was given more requests than it takes at once."""
    engine: Any = TrtllmEngine(PREFILL)
    assert engine._count_running() == 0
    engine._running = SimpleNamespace(running=inside)
    engine._loading.loaded = SimpleNamespace(info=SimpleNamespace(max_num_seqs=4))
    assert engine._count_running() == running


def test_every_request_that_ended_is_told_of() -> None:
    """TensorRT-LLM's own metrics count it."""
    engine: Any = TrtllmEngine(PREFILL)
    told: list[Any] = []
    engine._telling = SimpleNamespace(finished=told.append)
    ended = result(None)
    engine._finished(Delta(EngineId(1), [5], is_last=True, finish_reason=FinishReason.LENGTH), ended)
    assert told == [ended]
