"""One request of each outcome through the whole facade: spans, metrics, log line and kept story say the same.

Each listener's words are read back from where an operator reads them: OTLP bytes at a collector, the registry
behind ``/metrics``, the log record, the answer of the control route.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from protocols.steps import Delta, EngineId, FinishReason
from protocols.telemetry import Outcome, Phase
from service.telemetry.recorder import RecorderSettings, build_recorder
from tests.doubles.callers import PROMPT, wire_request
from tests.doubles.contexts import FakeClient
from tests.doubles.engines import ScriptedEngine
from tests.service.telemetry.collectors import http_collector
from tests.service.telemetry.conftest import export_to
from tests.service.telemetry.readings import all_lines, changes, samples_of
from tests.service.telemetry.told import by_line, by_metrics, by_spans, by_story

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.doubles.bridge import BridgeCall
    from tests.service.conftest import OpenWorker
    from tests.service.telemetry.told import Told
    from tests.service.worker import FacadeWorker

TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
HEADERS = {"traceparent": f"00-{TRACE_ID}-{SPAN_ID}-01"}
LINK = {"trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "span_id": "00f067aa0ba902b7"}
CONTEXT_ID = "request-1"
FIRST = EngineId(1)
# A span's times are whole nanoseconds of another clock, the others are rounded to microseconds.
EXACT_MS = 0.003


@dataclass(frozen=True)
class Ending:
    """How a request comes to its outcome. tokens: what its reader got; unread: what it was owed, too."""

    outcome: Outcome
    phase: Phase
    tokens: int
    live: Callable[[FacadeWorker], BridgeCall]
    settings: dict[str, Any] = field(default_factory=dict)
    unread: int = 0


def _ask(worker: FacadeWorker, **options: Any) -> BridgeCall:
    """A sampled request that came from another worker; the engine has it."""
    client = FakeClient(CONTEXT_ID, trace_headers=HEADERS)
    call = worker.ask(wire_request(max_tokens=50, migration_link=LINK, **options), client)
    worker.until(lambda: worker.script.live)
    return call


def _say(worker: FacadeWorker, call: BridgeCall, *token_ids: int, **facts: Any) -> None:
    """One step, of which the reader takes what there is. Half of the prompt was cached."""
    _wait_for_a_later_moment(worker)
    delta = Delta(FIRST, list(token_ids), cached_tokens=2)
    worker.loop.call(lambda: worker.script.emit(delta, **facts))
    call.step()


def _wait_for_a_later_moment(worker: FacadeWorker) -> None:
    """The double stamps its steps with the loop's clock, and uvloop's counts whole milliseconds."""
    before_s = worker.loop.call(anyio.current_time)
    worker.until(lambda: anyio.current_time() > before_s)


def _is_served(worker: FacadeWorker) -> BridgeCall:
    call = _ask(worker)
    _say(worker, call, 5)
    _say(worker, call, 6, 7, preempted=(FIRST,))
    _say(worker, call, 8)
    _wait_for_a_later_moment(worker)
    worker.finish(1, FinishReason.STOP, [9])
    return call.read_to_end()


def _is_served_twice(worker: FacadeWorker) -> BridgeCall:
    call = _ask(worker, n=2)
    for index in (0, 1):
        for token_id in (5, 6):
            worker.say(1, token_id, index=index)
            call.step()
    worker.loop.call(
        lambda: worker.script.emit(
            Delta(FIRST, [], 0, FinishReason.LENGTH), Delta(FIRST, [], 1, FinishReason.LENGTH, is_last=True)
        )
    )
    return call.read_to_end()


def _leaves(worker: FacadeWorker, **options: Any) -> BridgeCall:
    call = _ask(worker, **options)
    _say(worker, call, 5)
    call.begin_step()
    worker.leave(call.client)
    return call.read_to_end()


def _leaves_at_a_stop_string(worker: FacadeWorker) -> BridgeCall:
    return _leaves(worker, stop=["."])


def _leaves_before_the_first_token(worker: FacadeWorker) -> BridgeCall:
    call = _ask(worker)
    worker.leave(call.client)
    return call.read_to_end()


def _runs_out_of_time(worker: FacadeWorker) -> BridgeCall:
    call = _ask(worker)
    _say(worker, call, 5)
    return call.read_to_end()


def _takes_nothing(worker: FacadeWorker) -> BridgeCall:
    call = _ask(worker)
    _say(worker, call, 5)
    worker.say(1, 6)
    worker.until(lambda: worker.graph.ledger.outcomes[Outcome.STALLED])
    return call.read_to_end()


def _fails(worker: FacadeWorker) -> BridgeCall:
    call = _ask(worker)
    _say(worker, call, 5)
    worker.fail(1, "the engine's own words")
    return call.read_to_end()


def _is_shut_down(worker: FacadeWorker) -> BridgeCall:
    call = _ask(worker)
    _say(worker, call, 5)
    draining = worker.loop.begin(worker.facade.engine_control("drain", {"timeout_s": 0}))
    call.read_to_end()
    draining.result(10)
    return call


def _asks_for_nonsense(worker: FacadeWorker) -> BridgeCall:
    client = FakeClient(CONTEXT_ID, trace_headers=HEADERS)
    return worker.generate(wire_request(max_tokens=-1, migration_link=LINK), client).read_to_end()


ENDINGS = [
    Ending(Outcome.COMPLETED, Phase.DECODE, 5, _is_served),
    Ending(Outcome.COMPLETED, Phase.DECODE, 4, _is_served_twice),
    Ending(Outcome.STOPPED_BY_FRONTEND, Phase.DECODE, 1, _leaves_at_a_stop_string),
    Ending(Outcome.CANCELLED, Phase.DECODE, 1, _leaves),
    Ending(Outcome.CANCELLED, Phase.PREFILL, 0, _leaves_before_the_first_token),
    Ending(Outcome.DEADLINE, Phase.DECODE, 1, _runs_out_of_time, {"deadline_s": 0.15}),
    Ending(Outcome.STALLED, Phase.DECODE, 1, _takes_nothing, {"stall_timeout_s": 0.1}, unread=1),
    Ending(Outcome.FAILED, Phase.DECODE, 1, _fails),
    Ending(Outcome.INTERRUPTED, Phase.DECODE, 1, _is_shut_down),
    Ending(Outcome.REFUSED, Phase.RESOLVING, 0, _asks_for_nonsense),
]


def _hear(
    ending: Ending, open_worker: OpenWorker, monkeypatch: pytest.MonkeyPatch
) -> tuple[BridgeCall, dict[str, Told]]:
    """Live one request, and read back what every listener told of it."""
    with http_collector() as collector, all_lines() as lines:
        for name, value in export_to(collector.endpoint, "http/protobuf").items():
            monkeypatch.setenv(name, value)
        recorder = build_recorder(
            RecorderSettings(engine="scripted", framework_version="1", version="1", environ=dict(os.environ))
        )
        with open_worker(ScriptedEngine(), recorder=recorder, **ending.settings) as worker:
            worker.open()
            before = samples_of(recorder.registry)
            call = ending.live(worker)
            worker.settle_engine()
            counted = changes(before, samples_of(recorder.registry))
            (story,) = worker.control("trace")["stories"]
        recorder.shutdown()
        (line,) = lines.named("request.ended")
        spans = {
            name: span for name, span in collector.spans.items() if name not in {"actor.drain", "actor.abort"}
        }
    return call, {
        "story": by_story(story),
        "line": by_line(line),
        "spans": by_spans(spans),
        "metrics": by_metrics(counted),
    }


def _differences(figures: Told, story: Told) -> dict[str, tuple[Any, Any]]:
    """Figures of a listener that are not the story's: both values."""
    return {name: (value, story[name]) for name, value in figures.items() if not _is_same(value, story[name])}


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, int | float) and isinstance(other, int | float):
        return abs(one - other) <= EXACT_MS
    return bool(one == other)


def test_every_outcome_is_lived() -> None:
    """A new one needs a way to come to it here."""
    assert {ending.outcome for ending in ENDINGS} == set(Outcome)


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending.live.__name__)
def test_all_listeners_tell_the_same(
    ending: Ending, open_worker: OpenWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every figure that two of them tell is one figure, and it is what the reader saw."""
    call, told = _hear(ending, open_worker, monkeypatch)
    story = told.pop("story")
    assert (story["outcome"], story["phase"]) == (ending.outcome, ending.phase)
    assert len(call.tokens) == ending.tokens
    # The counter is of what the engine has made, the usage of what the reader was given.
    told["metrics"]["completion_tokens"] -= ending.unread
    assert story["chunks"] == len(call.chunks)
    assert {listener: _differences(figures, story) for listener, figures in told.items()} == {
        "line": {},
        "spans": {},
        "metrics": {},
    }


def test_the_figures_are_those_of_the_life(open_worker: OpenWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids, tokens, chunks, preemptions: known here, so that all of them cannot be wrong together."""
    _, told = _hear(ENDINGS[0], open_worker, monkeypatch)
    story = told["story"]
    assert {name: story[name] for name in ("engine_id", "context_id", "trace_id", "predecessor")} == {
        "engine_id": 1,
        "context_id": CONTEXT_ID,
        "trace_id": TRACE_ID,
        "predecessor": str(LINK),
    }
    assert story["prompt_tokens"] == len(PROMPT)
    assert (story["cached_tokens"], story["completion_tokens"], story["preemptions"]) == (2, 5, 1)
    assert 0 < story["queue_ms"] <= story["ttft_ms"] <= story["request_ms"]
    assert 0 < story["itl_p50_ms"] <= story["itl_mean_ms"] * 4


def test_a_listener_that_counts_for_itself_is_found_out(
    open_worker: OpenWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This test can fail: each listener that told one figure a little differently would be seen."""
    _, told = _hear(ENDINGS[0], open_worker, monkeypatch)
    story = told.pop("story")
    for figures in told.values():
        numbers = [name for name, value in figures.items() if isinstance(value, int | float)]
        assert len(numbers) >= 10
        for name in numbers:
            assert name in _differences({name: figures[name] + 0.01}, story)
