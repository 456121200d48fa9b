"""What an engine does not tell has no series: nought would be taken for a figure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from actors.engines.trtllm import TrtllmConfig, TrtllmEngine
from protocols.engine import EngineCapabilities, Figure
from protocols.steps import EngineId, EngineStep
from service.assembly import ThisProcess, build_worker
from service.models import ResolvedModel
from service.notify import Notifier
from service.stopping import StopSignals
from service.telemetry.metrics import Metrics
from tests.doubles.trtllm_llms import write_folder
from tests.service.options.world import load, with_tensorrt
from tests.service.telemetry.readings import changes, samples_of
from tests.service.test_kv_publishing import paged_engine

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from tests.service.conftest import OpenWorker

BLOCKS, PREEMPTIONS = "kv_blocks", "engine_preemptions_total"
ALL = {f'kv_blocks{{state="{state}"}}' for state in ("used", "cached", "free")} | {PREEMPTIONS}
STEP = EngineStep([], 1.0, 1.5, used_blocks=3, cached_blocks=2, preempted=(EngineId(1),))


def told(registry: CollectorRegistry) -> set[str]:
    """The series that an engine may leave out, of those that are there."""
    return {name for name in samples_of(registry) if name.startswith((BLOCKS, PREEMPTIONS))}


def metrics_of(untold: frozenset[Figure]) -> Metrics:
    can = EngineCapabilities(untold=untold)
    return Metrics(version="1", engine="trtllm", framework_version="1", capabilities=can)


def untold_by(**arguments: Any) -> frozenset[Figure]:
    """By TensorRT-LLM with these arguments."""
    config = TrtllmConfig(model_path=Path("m"), vocab_size=9, context_length=64, arguments=arguments)
    return TrtllmEngine(config).capabilities.untold


def test_without_its_statistics_tensorrt_llm_shows_no_blocks():
    """Neither used ones nor free ones, which would be all of them."""
    assert told(metrics_of(untold_by()).registry) == set()


def test_with_its_statistics_it_shows_what_they_tell():
    """Used and free; those kept for reuse are among the latter, and pauses have a metric of its own."""
    found = told(metrics_of(untold_by(enable_iter_perf_stats=True)).registry)
    assert found == {f'kv_blocks{{state="{state}"}}' for state in ("used", "free")}


@pytest.mark.parametrize("untold", [frozenset[Figure](), *(frozenset({each}) for each in Figure)])
def test_what_is_told_later_makes_no_series(untold: frozenset[Figure]):
    """Whatever an engine says of what it does not know: the page stays as it was at the start."""
    metrics = metrics_of(untold)
    before = samples_of(metrics.registry)
    metrics.step_done(STEP, tokens=0)
    assert all(name in before for name in changes(before, samples_of(metrics.registry)))


def test_an_engine_that_tells_everything_has_every_series():
    """As the page of metrics lists them."""
    assert told(metrics_of(frozenset()).registry) == ALL


@pytest.mark.parametrize(("words", "states"), [((), set()), (("--publish-metrics",), {"used", "free"})])
def test_the_worker_asks_its_engine(words: tuple[str, ...], states: set[str], tmp_path: Path):
    """Its word reaches the page, for blocks and for memories that it can give back."""
    settings = load("--engine", "trtllm", *words, installed=with_tensorrt())
    model = ResolvedModel(write_folder(tmp_path), "model", "folder")
    process = ThisProcess(StopSignals(), Notifier(), "id")
    registry = build_worker(settings, "trtllm", model, process, {}).recorder.registry
    assert told(registry) == {f'kv_blocks{{state="{state}"}}' for state in states}
    assert samples_of(registry)['memory_asleep{memory="kv_cache"}'] == 0


def test_the_frameworks_own_gauges_are_left_out_as_well(open_worker: OpenWorker) -> None:
    """They cannot show that a figure is not known."""
    engine = paged_engine()
    engine.capabilities = replace(engine.capabilities, untold=frozenset({Figure.USED_BLOCKS}))
    with open_worker(engine, publishes_kv_events=True) as worker:
        worker.open()
        assert worker.facade.component_metrics_dp_ranks() == []
