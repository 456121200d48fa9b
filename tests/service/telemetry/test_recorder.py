"""The recorder: one story, the same figures everywhere, no content anywhere, and nothing can break it."""

from __future__ import annotations

import json
import os
import threading
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from msgspec import convert
from msgspec.structs import asdict
from prometheus_client import generate_latest

from protocols.bounds import Bound
from protocols.steps import EngineStep
from protocols.telemetry import AbortResult, CancelReason, Outcome, Phase, Telemetry, WorkerState
from protocols.trace_link import TraceLink
from service.inspection.story import Story
from service.inspection.waterfall import render_story
from service.telemetry.bounds import BoundCounts
from service.telemetry.loop_lag import INTERVAL_S, LoopLag
from service.telemetry.metrics import LISTENERS, Metrics
from service.telemetry.recorder import Recorder
from service.telemetry.request_log import RequestLog
from service.telemetry.stories import Kept, Stories
from tests.service.telemetry.collectors import attributes_of
from tests.service.telemetry.readings import changes, samples_of
from tests.service.telemetry.tales import (
    PARENT_ID,
    SAMPLED,
    TRACE_ID,
    outcome_of,
    report_of_drain,
    tale,
    tale_of_abort,
    tale_of_each,
)

if TYPE_CHECKING:
    from protocols.telemetry import RequestStory
    from tests.service.telemetry.conftest import NewRecorder, OpenCollector
    from tests.service.telemetry.readings import Lines


@pytest.mark.parametrize("story", tale_of_each(), ids=outcome_of)
def test_metrics_log_and_story_agree(new_recorder: NewRecorder, lines: Lines, story: RequestStory):
    """The same figures, whoever is asked."""
    recorder = new_recorder()
    before = samples_of(recorder.registry)
    recorder.request_ended(story)
    counted = changes(before, samples_of(recorder.registry))
    (line,) = lines.named("request.ended")
    (told,) = recorder.stories.as_dicts(recorder.stories.select(Kept.LAST))
    assert counted[f'requests_total{{outcome="{line["outcome"]}"}}'] == 1
    assert line["outcome"] == told["outcome"]
    for metric, in_line, in_story in [
        ("request_seconds_sum", "request_s", "duration_ms"),
        ("queue_seconds_sum", "queue_s", "queue_ms"),
        ("time_to_first_token_seconds_sum", "ttft_s", "ttft_ms"),
        ("time_per_output_token_seconds_sum", "itl_mean_s", "itl_mean_ms"),
    ]:
        figure = counted.get(metric)
        assert line.get(in_line) == figure
        assert told[in_story] == (None if figure is None else figure * 1000)
    for hop in told["hops"]:
        name = hop["name"].removeprefix("actor.")
        assert counted[f'hop_seconds_sum{{hop="{name}"}}'] * 1000 == hop["duration_ms"]
    same = (
        "phase",
        "n",
        "prompt_tokens",
        "cached_tokens",
        "completion_tokens",
        "finish_reason",
        "cancel_reason",
    )
    for name in (*same, "error_kind", "engine_id", "context_id"):
        assert line.get(name) == told[name]
    if story.submitted_s is not None:
        assert counted['tokens_total{direction="input"}'] == story.prompt_tokens


@pytest.mark.parametrize(
    ("outcome", "level"),
    [
        (Outcome.COMPLETED, "INFO"),
        (Outcome.STOPPED_BY_FRONTEND, "INFO"),
        (Outcome.CANCELLED, "INFO"),
        (Outcome.REFUSED, "INFO"),
        (Outcome.DEADLINE, "WARNING"),
        (Outcome.STALLED, "WARNING"),
        (Outcome.FAILED, "WARNING"),
        (Outcome.INTERRUPTED, "WARNING"),
    ],
)
def test_one_line_a_request_at_its_level(
    new_recorder: NewRecorder, lines: Lines, outcome: Outcome, level: str
):
    """What nobody here has to look at is information."""
    new_recorder().request_ended(tale(outcome))
    assert [line["level"] for line in lines.named("request.ended")] == [level]
    assert len(lines.records) == 1


def test_the_line_can_be_joined_with_the_trace(new_recorder: NewRecorder, lines: Lines):
    """All ids stand in it, the caller's and the framework's span among them, whether spans are on or not."""
    headers = {**SAMPLED, "x-request-id": "gateway-1"}
    before = TraceLink("ab" * 16, "cd" * 8)
    new_recorder().request_ended(tale(trace_headers=headers, predecessor=before))
    (line,) = lines.named("request.ended")
    ids = {name: value for name, value in line.items() if name.endswith("_id")}
    assert ids == {
        "engine_id": 7,
        "context_id": "ctx-7",
        "x_request_id": "gateway-1",
        "trace_id": TRACE_ID,
        "span_id": PARENT_ID,
        "predecessor_trace_id": before.trace_id,
        "predecessor_span_id": before.span_id,
    }


def test_a_probe_is_seen_by_nobody_but_those_who_debug(new_recorder: NewRecorder, lines: Lines):
    """No metric moves, no story is kept, its line is at DEBUG."""
    recorder = new_recorder()
    before = samples_of(recorder.registry)
    recorder.request_ended(tale(is_probe=True))
    assert changes(before, samples_of(recorder.registry)) == {}
    assert recorder.stories.select(Kept.LAST) == []
    assert [line["level"] for line in lines.named("request.probe")] == ["DEBUG"]
    assert len(lines.records) == 1


_SECRET = "the patient's name is Jane Doe"


def _hostile(**changes: Any) -> Any:
    """A request whose every free field is content."""
    headers = {
        **SAMPLED,
        "tracestate": f"vendor={_SECRET}",
        "baggage": _SECRET,
        "x-request-id": _SECRET,
        "request-id": _SECRET,
    }
    return tale(context_id=f"{_SECRET}\nERROR forged line", trace_headers=headers, **changes)


def test_no_content_anywhere(open_collector: OpenCollector, new_recorder: NewRecorder, lines: Lines):
    """Ids that are sentences, headers that carry text, keys that are prompts: none of it is written."""
    with open_collector() as collector:
        recorder = new_recorder(dict(os.environ))
        recorder.request_submitted(_hostile().trace_headers)
        recorder.request_named_unknown(_SECRET)
        for outcome in Outcome:
            recorder.request_ended(_hostile(outcome=outcome))
        recorder.shutdown()
        stories = recorder.stories.as_dicts(recorder.stories.select(Kept.LAST))
        written = "\n".join(
            [
                lines.text,
                generate_latest(recorder.registry).decode(),
                json.dumps(stories),
                *(line for story in stories for line in render_story(convert(story, Story))),
                *(str(request) for request in collector.requests),
            ]
        )
        assert collector.requests
    assert "Jane" not in written
    assert "forged" not in written
    assert "sha256:" in written


def test_an_id_that_is_one_is_written_as_it_is(open_collector: OpenCollector, new_recorder: NewRecorder):
    """Only what does not look like an id is replaced, so that people find theirs."""
    with open_collector() as collector:
        recorder = new_recorder(dict(os.environ))
        recorder.request_ended(tale(context_id="0b5f8a3e-7d0e-4c52-9a3e-5f1f0e8c7a11", trace_headers=SAMPLED))
        recorder.shutdown()
        ids = {attributes_of(span.attributes)["actor.context_id"] for span in collector.all_spans}
    assert ids == {"0b5f8a3e-7d0e-4c52-9a3e-5f1f0e8c7a11"}


def test_a_name_that_is_not_written_as_it_came_is_counted(new_recorder: NewRecorder, lines: Lines):
    """Once for each line it would have stood in; an id that is one is in no count."""
    recorder = new_recorder()
    before = samples_of(recorder.registry)
    recorder.request_ended(tale(context_id="an-id"))
    recorder.request_ended(tale(context_id="x" * 129))
    recorder.request_named_unknown(_SECRET)
    counted = changes(before, samples_of(recorder.registry))
    assert counted['bound_reached_total{bound="log_names"}'] == 2


def test_a_key_nobody_knows_is_named_once(new_recorder: NewRecorder, lines: Lines):
    """Not once a request; the other times are counted."""
    recorder = new_recorder()
    before = samples_of(recorder.registry)
    for _ in range(100):
        recorder.request_named_unknown("frobnicate")
    counted = changes(before, samples_of(recorder.registry))
    assert counted == {'bound_reached_total{bound="log_repeats"}': 99}
    assert lines.named("request.unknown_key") == [{"level": "WARNING", "key": "frobnicate"}]


def test_the_life_of_a_worker_in_lines(new_recorder: NewRecorder, lines: Lines):
    """States with what was before and for how long, the drain's heartbeat with what is left, its end."""
    recorder = new_recorder()
    recorder.state_changed(WorkerState.SERVING)
    recorder.state_changed(WorkerState.DRAINING)
    recorder.drain_progress(3, 12.5)
    recorder.drain_progress(1, 7.5)
    recorder.drain_progress(0, 7.0)
    report = report_of_drain(completed=5, moved=0, interrupted=0)
    recorder.drain_ended(report)
    recorder.state_changed(WorkerState.FAILED)
    states = lines.named("worker.state")
    assert all(0 <= state.pop("before_s") < 60 for state in states)
    assert states == [
        {"level": "INFO", "state": "serving"},
        {"level": "INFO", "state": "draining", "before": "serving"},
        {"level": "ERROR", "state": "failed", "before": "draining"},
    ]
    assert lines.named("drain.started") == [{"level": "INFO", "remaining": 3, "left_s": 12.5}]
    assert lines.named("drain.waiting") == [{"level": "INFO", "remaining": 1, "left_s": 7.5}]
    ended = asdict(report)
    assert lines.named("drain.ended") == [{"level": "INFO", **ended}]


@pytest.mark.parametrize(
    ("interrupted", "words"),
    [(1, "1 request interrupted by shutdown"), (2, "2 requests interrupted by shutdown")],
)
def test_a_drain_that_cut_somebody_short_says_so_as_a_warning(
    new_recorder: NewRecorder, lines: Lines, interrupted: int, words: str
):
    """In words that can be looked for, with all figures (S04)."""
    report = report_of_drain(interrupted=interrupted)
    new_recorder().drain_ended(report)
    ended = asdict(report)
    assert lines.named("drain.ended") == [{"level": "WARNING", "about": words, **ended}]


def test_a_request_that_goes_on_elsewhere_is_told_from_one_that_is_lost(
    new_recorder: NewRecorder, lines: Lines
):
    """Both are interrupted; one of them is moved, in the metrics and in its line."""
    recorder = new_recorder()
    before = samples_of(recorder.registry)
    for is_moved in (True, False):
        recorder.request_ended(tale(Outcome.INTERRUPTED, is_moved=is_moved))
    counted = changes(before, samples_of(recorder.registry))
    assert counted['requests_total{outcome="interrupted"}'] == 2
    assert counted["requests_moved_total"] == 1
    assert [line.get("is_moved") for line in lines.named("request.ended")] == [True, None]


def test_an_abort_nobody_confirms_is_named(new_recorder: NewRecorder, lines: Lines):
    """The other two, and what they are about, are for those who debug."""
    recorder = new_recorder()
    recorder.request_cancelled(CancelReason.CLIENT, Phase.DECODE)
    for result in AbortResult:
        recorder.abort_told(tale_of_abort(result))
    assert lines.named("request.cancelling") == [{"level": "DEBUG", "reason": "client", "phase": "decode"}]
    assert [line["result"] for line in lines.named("engine.abort")] == ["asked", "confirmed"]
    (line,) = lines.named("engine.abort_not_confirmed")
    told = tale_of_abort(AbortResult.TIMED_OUT)
    assert line == {"level": "WARNING", "engine_id": told.engine_id, "since_s": told.at_s - told.asked_s}


def test_a_bound_is_counted_as_itself(new_recorder: NewRecorder, lines: Lines):
    """Each has its series from the start. Only those after which there is nobody to ask have a line."""
    recorder = new_recorder()
    before = samples_of(recorder.registry)
    for count, bound in enumerate(Bound, start=1):
        recorder.bound_reached(bound, count)
    counted = changes(before, samples_of(recorder.registry))
    assert counted == {
        f'bound_reached_total{{bound="{bound.value}"}}': count for count, bound in enumerate(Bound, start=1)
    }
    for line in ("engine.stop_timed_out", "request.not_read"):
        assert [each["level"] for each in lines.named(line)] == ["WARNING"]
    assert len(lines.records) == 2


@pytest.mark.parametrize(("readers", "words"), [(1, "waiting for 1 reader"), (2, "waiting for 2 readers")])
def test_a_worker_that_waits_for_readers_says_so(
    new_recorder: NewRecorder, lines: Lines, readers: int, words: str
):
    """For how many, and for how long at most."""
    new_recorder().readers_awaited(readers, 1.25)
    assert lines.named("drain.reading") == [
        {"level": "INFO", "about": words, "readers": readers, "left_s": 1.25}
    ]


def test_bounds_are_counted_from_any_thread():
    """None is lost when several count at once."""
    counts = BoundCounts()

    def count() -> None:
        for _ in range(2000):
            counts(Bound.STEP_WAIT)

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (family,) = counts.collect()
    found = {sample.labels["bound"]: sample.value for sample in family.samples}
    assert found == {bound.value: 16_000 if bound is Bound.STEP_WAIT else 0 for bound in Bound}


class _Broken:
    """A listener with a bug in every method."""

    def __getattr__(self, name: str) -> Any:
        def fail(*_args: object) -> None:
            raise RuntimeError(_SECRET)

        return fail


def _tell_everything(recorder: Telemetry) -> None:
    recorder.request_submitted(SAMPLED)
    recorder.request_ended(tale(trace_headers=SAMPLED))
    recorder.request_named_unknown("key")
    recorder.request_cancelled(CancelReason.CLIENT, Phase.DECODE)
    recorder.abort_told(tale_of_abort(AbortResult.TIMED_OUT))
    recorder.step_done(EngineStep([], 0.0, 1.0), 1)
    recorder.state_changed(WorkerState.DRAINING)
    recorder.drain_progress(1, 0.0)
    recorder.drain_ended(report_of_drain())
    for bound in Bound:
        recorder.bound_reached(bound)


@pytest.mark.parametrize("broken", ["stories", "log", "spans"])
def test_a_broken_listener_breaks_nothing_else(lines: Lines, broken: str):
    """It is counted and named by its kind; the others hear everything; the engine gets its headers."""
    metrics = Metrics(version="1", engine="torch", framework_version="1.4.2")
    parts: dict[str, Any] = {"stories": Stories(), "log": RequestLog(), "spans": None, broken: _Broken()}
    recorder = Recorder(metrics, parts["stories"], parts["log"], parts["spans"])
    assert recorder.request_submitted(SAMPLED) == (tuple(SAMPLED.items()), None)
    _tell_everything(recorder)
    recorder.shutdown()
    counted = samples_of(metrics.registry)
    assert counted['requests_total{outcome="completed"}'] == 1
    assert counted[f'telemetry_errors_total{{listener="{broken}"}}'] > 0
    failures = lines.named("telemetry.listener_failed")
    assert [line["listener"] for line in failures] == ([] if broken == "log" else [broken])
    assert "Jane" not in lines.text


class _BrokenMetrics(_Broken):
    """Only what is told without a guard, and the count of what broke, works."""

    def __init__(self, metrics: Metrics) -> None:
        self.registry = metrics.registry
        self.bounds = metrics.bounds
        self.count_chunk = metrics.count_chunk
        self.kv_events = metrics.kv_events
        self.step_done = metrics.step_done
        self.listener_failed = metrics.listener_failed


def test_broken_metrics_break_nothing_else(lines: Lines):
    """Each report that was not counted is, as one that was not; the graph and the log never notice."""
    metrics = Metrics(version="1", engine="torch", framework_version="1.4.2")
    broken: Any = _BrokenMetrics(metrics)
    recorder = Recorder(broken, Stories(), RequestLog(), None)
    _tell_everything(recorder)
    recorder.watch(broken)
    recorder.graph_closed()
    # An end, a cancel, an abort, a state, a drain's progress and end, a graph's opening and end.
    assert samples_of(metrics.registry)['telemetry_errors_total{listener="metrics"}'] == 8
    assert len(lines.named("request.ended")) == len(lines.named("drain.ended")) == 1


def test_a_story_without_figures_is_counted_for_each_who_would_write_it(lines: Lines):
    """A bug in what is computed from it never reaches the graph."""
    metrics = Metrics(version="1", engine="torch", framework_version="1.4.2")
    recorder = Recorder(metrics, Stories(), RequestLog(), None)
    recorder.request_ended(tale(arrived_s=None))
    counted = samples_of(metrics.registry)
    failed = {listener: counted[f'telemetry_errors_total{{listener="{listener}"}}'] for listener in LISTENERS}
    assert failed == {"metrics": 1, "stories": 1, "log": 1, "spans": 0}
    assert {line["listener"] for line in lines.named("telemetry.listener_failed")} == {"metrics", "stories"}


@pytest.mark.anyio
async def test_loop_lag_is_what_the_timer_came_too_late():
    """A quarter second late is a quarter second; a loop on time has a lag of zero, never less."""
    times = iter([0.0, INTERVAL_S + 0.25, 10.0, 10.0 + INTERVAL_S - 0.125, 20.0])
    seen: list[float] = []

    async with anyio.create_task_group() as tasks:

        def observe(lag_s: float) -> None:
            seen.append(lag_s)
            if len(seen) == 2:
                tasks.cancel_scope.cancel()

        tasks.start_soon(LoopLag(observe, clock=lambda: next(times)).run)
    assert seen == [0.25, 0.0]
