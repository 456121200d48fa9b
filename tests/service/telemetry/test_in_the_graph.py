"""The recorder as the listener of a real graph: what it says about it is what the graph knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from actors.graph import open_graph
from actors.settings import GraphSettings
from actors.surroundings import Surroundings
from service.telemetry.live import MAILBOXES
from tests.actors.world import Visit
from tests.doubles.callers import FakeCaller, wire_request
from tests.doubles.engines import SteppingEngine, engine_info, guiding_engine
from tests.service.telemetry.readings import samples_of

if TYPE_CHECKING:
    from tests.service.telemetry.conftest import NewRecorder
    from tests.service.telemetry.readings import Lines

pytestmark = pytest.mark.anyio


async def test_figures_of_a_graph_that_served(new_recorder: NewRecorder, lines: Lines):
    """Three answers and one refusal: live gauges come and go, counters and lines add up."""
    recorder = new_recorder()
    around = Surroundings(
        engine=SteppingEngine(), telemetry=recorder, clock=anyio.current_time, on_crash=lambda exc: None
    )
    async with open_graph(GraphSettings(), around) as graph:
        recorder.watch(graph)
        visits = [Visit(graph, FakeCaller(), wire_request(max_tokens=5)) for _ in range(3)]
        assert samples_of(recorder.registry)["requests_live"] == 3
        for visit in visits:
            assert len((await visit.answer()).tokens) == 5
        refused = Visit(graph, FakeCaller(), wire_request(max_tokens=-1))
        await refused.answer()
        await anyio.wait_all_tasks_blocked()
        found = samples_of(recorder.registry)
    assert found["requests_live"] == found["requests_in_flight"] == found["engine_running_sequences"] == 0
    assert found['requests_total{outcome="completed"}'] == 3
    assert (
        found['requests_total{outcome="refused"}'] == found['rejected_total{reason="invalid_request"}'] == 1
    )
    assert found['tokens_total{direction="output"}'] == 15
    assert found['tokens_total{direction="input"}'] == 12
    ended = lines.named("request.ended")
    assert [line["outcome"] for line in ended] == ["completed"] * 3 + ["refused"]
    assert sum(line["completion_tokens"] for line in ended) == 15
    states = [line["state"] for line in lines.named("worker.state")]
    assert states == ["loading", "serving", "stopping"]


async def test_every_mailbox_of_the_graph_has_its_series(new_recorder: NewRecorder, lines: Lines):
    """From the start on; with the capacities of the open graph later. Only the engine's facts are new."""
    recorder = new_recorder()
    before = samples_of(recorder.registry).keys()
    around = Surroundings(
        engine=SteppingEngine(), telemetry=recorder, clock=anyio.current_time, on_crash=lambda exc: None
    )
    async with open_graph(GraphSettings(), around) as graph:
        recorder.watch(graph)
        assert [box.actor for box in graph.mailboxes()] == list(MAILBOXES)
        found = samples_of(recorder.registry)
    assert [name for name in found if name not in before and "_config_info" not in name] == []
    assert before <= found.keys()
    assert all(found[f'mailbox_capacity{{actor="{actor}"}}'] > 0 for actor in MAILBOXES)


async def test_each_stage_has_a_gauge_of_its_own(new_recorder: NewRecorder, lines: Lines):
    """Who is being resolved is live and nothing else; who lacks a slot waits; who is done is nowhere."""
    recorder = new_recorder()
    engine, preparer = guiding_engine()
    around = Surroundings(
        engine=engine, telemetry=recorder, clock=anyio.current_time, on_crash=lambda exc: None
    )
    async with open_graph(GraphSettings(), around) as graph:
        recorder.watch(graph)
        visits = [Visit(graph, FakeCaller(), wire_request(guided_decoding={"regex": "a+"}))]
        visits += [Visit(graph, FakeCaller(), wire_request(n=1)) for _ in range(graph.info.max_num_seqs + 2)]
        await anyio.wait_all_tasks_blocked()
        assert preparer.is_busy
        full = stages(samples_of(recorder.registry))
        for visit in visits:
            await visit.leave()
        await anyio.wait_all_tasks_blocked()
        empty = stages(samples_of(recorder.registry))
        preparer.release()
    slots = engine_info().max_num_seqs
    assert full == {"requests_live": slots + 3, "requests_waiting": 2, "requests_in_flight": slots}
    assert empty == dict.fromkeys(full, 0)


def stages(samples: dict[str, float]) -> dict[str, float]:
    """The gauges that say where requests are."""
    names = ("requests_live", "requests_waiting", "requests_in_flight")
    return {name: samples[name] for name in names}
