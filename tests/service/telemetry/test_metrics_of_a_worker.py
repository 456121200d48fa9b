"""Metrics of a whole facade: what is not a request moves nothing, and nothing is left when all is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocols.steps import Delta, EngineId
from service.telemetry.recorder import Recorder, RecorderSettings, build_recorder
from tests.doubles.callers import wire_request
from tests.doubles.engines import ScriptedEngine
from tests.service.telemetry.readings import changes, samples_of
from tests.service.worker import budgets, synthetic

if TYPE_CHECKING:
    from tests.service.conftest import OpenWorker


def _new_recorder() -> Recorder:
    return build_recorder(
        RecorderSettings(engine="synthetic", framework_version="1.4.2", version="1", model="m", environ={})
    )


def test_a_health_probe_moves_no_figure_but_the_engines(open_worker: OpenWorker) -> None:
    """A worker that was only ever asked how it is has served nobody: no tokens, no chunks, no requests."""
    recorder = _new_recorder()
    with open_worker(synthetic(1.0), recorder=recorder) as worker:
        worker.open()
        before = samples_of(recorder.registry)
        payload = worker.loop.run(worker.facade.health_check_payload())
        assert payload is not None
        probe = worker.generate(wire_request(payload.pop("token_ids"), **payload)).read_to_end()
        assert len(probe.tokens) == 1
        worker.settle_engine()
        moved = changes(before, samples_of(recorder.registry))
    ours = {name for name in moved if not name.startswith(("loop_lag", "trtllm_iteration_latency_seconds"))}
    assert ours == {"engine_steps_total", "engine_step_seconds_count", "engine_step_seconds_sum"}


@pytest.mark.parametrize("is_dead", [False, True], ids=["stopped", "dead"])
def test_the_last_scrape_shows_nobody_live(open_worker: OpenWorker, is_dead: bool) -> None:
    """Whatever a worker ended of: what lay in its lanes and its engine then is nobody's any more."""
    recorder = _new_recorder()
    engine = ScriptedEngine()
    with open_worker(engine, recorder=recorder, drain=budgets(drain_s=0.2, return_by_s=2.0)) as worker:
        worker.open()
        calls = [worker.ask(wire_request(max_tokens=9)) for _ in range(3)]
        worker.until(lambda: len(engine.live) == 3)
        said = Delta(EngineId(1), [1])
        worker.loop.call(lambda: engine.emit(said, used_blocks=7, cached_blocks=2))
        worker.until(lambda: samples_of(recorder.registry)['kv_blocks{state="used"}'] == 7)
        assert samples_of(recorder.registry)["requests_in_flight"] == 3
        if is_dead:
            worker.loop.call(engine.die)
        worker.cleanup()
        for call in calls:
            call.read_to_end()
        after = samples_of(recorder.registry)
    gauges = (
        "requests_",
        "engine_running",
        "mailbox_depth",
        "kv_blocks",
        "drain_remaining",
        "trtllm_num_req",
    )
    assert [name for name in after if name.startswith(gauges) and "_total" not in name and after[name]] == []
