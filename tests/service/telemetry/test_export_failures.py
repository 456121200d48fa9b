"""Collectors that are gone, say no, or say nothing: requests go on, every lost span is counted."""

from __future__ import annotations

import logging
import time
from threading import Event, Semaphore
from typing import TYPE_CHECKING

import pytest
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from protocols.telemetry import Outcome
from service.options.errors import ConfigError
from service.telemetry.exporting import FLUSH_S, LET_GO_S, Pipeline, build_exporter
from service.telemetry.trace_settings import TraceSettings, read_trace_settings
from tests.e2e.waiting import wait_until
from tests.service.telemetry.conftest import export_to
from tests.service.telemetry.readings import samples_of
from tests.service.telemetry.tales import SAMPLED, tale

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opentelemetry.sdk.trace import ReadableSpan

    from service.telemetry.recorder import Recorder
    from tests.service.telemetry.conftest import NewRecorder, OpenCollector
    from tests.service.telemetry.readings import Lines


def _environ() -> dict[str, str]:
    import os

    return dict(os.environ)


def _lost(recorder: Recorder) -> dict[str, float]:
    found = samples_of(recorder.registry)
    return {
        name.removeprefix("spans_lost_total"): value
        for name, value in found.items()
        if name.startswith("spans_lost_total") and value
    }


# It waits for 2 s at most; the rest is for a busy machine. The SDK alone would wait for 30 s.
_PATIENCE_S = 15.0


def _shut_down(recorder: Recorder) -> None:
    """Without the SDK's patience."""
    began_s = time.monotonic()
    recorder.shutdown()
    assert time.monotonic() - began_s < _PATIENCE_S


def _refused(open_collector: OpenCollector, new_recorder: NewRecorder) -> Recorder:
    """One whose only request a collector did not take."""
    with open_collector(refuses=True) as collector:
        recorder = new_recorder(_environ())
        recorder.request_ended(tale(trace_headers=SAMPLED))
        recorder.shutdown()
        assert collector.asked.is_set()
    return recorder


@pytest.mark.usefixtures("lines")
def test_a_collector_that_says_no(open_collector: OpenCollector, new_recorder: NewRecorder):
    """Its spans are lost and counted; nothing is raised."""
    recorder = _refused(open_collector, new_recorder)
    assert _lost(recorder) == {'{reason="export_failed"}': 4}


def test_no_collector_at_all(
    protocol: str, new_recorder: NewRecorder, monkeypatch: pytest.MonkeyPatch, lines: Lines
):
    """Shutdown stops the retries within its 2 s; whatever the reason is called, all are lost, said once."""
    for name, value in export_to("http://127.0.0.1:9", protocol).items():
        monkeypatch.setenv(name, value)
    recorder = new_recorder(_environ())
    for _ in range(3):
        recorder.request_ended(tale(trace_headers=SAMPLED))
    _shut_down(recorder)
    assert sum(_lost(recorder).values()) == 12
    assert len(lines.named("trace.spans_lost")) == 1


@pytest.mark.usefixtures("lines")
def test_a_collector_that_never_answers(open_collector: OpenCollector, new_recorder: NewRecorder):
    """Requests end as before while it is stuck, and shutdown gives up."""
    with open_collector(is_stuck=True) as collector:
        recorder = new_recorder({**_environ(), "OTEL_BSP_SCHEDULE_DELAY": "1"})
        recorder.request_ended(tale(trace_headers=SAMPLED))
        assert collector.asked.wait(10)
        recorder.request_ended(tale(Outcome.FAILED, trace_headers=SAMPLED))
        _shut_down(recorder)
        assert sum(_lost(recorder).values()) == 8
    counted = samples_of(recorder.registry)
    assert counted['requests_total{outcome="completed"}'] == 1
    assert counted['requests_total{outcome="failed"}'] == 1


@pytest.mark.usefixtures("lines")
def test_a_collector_that_has_no_time_now(open_collector: OpenCollector, new_recorder: NewRecorder):
    """It is asked again; nothing is lost, and nothing is sent twice."""
    with open_collector(unavailable=1) as collector:
        recorder = new_recorder({**_environ(), "OTEL_BSP_SCHEDULE_DELAY": "1"})
        recorder.request_ended(tale(trace_headers=SAMPLED))
        wait_until(lambda: collector.requests, "it was not asked again")
        recorder.shutdown()
        assert len(collector.all_spans) == 4
    assert _lost(recorder) == {}


@pytest.mark.usefixtures("lines")
def test_a_collector_that_never_has_time(open_collector: OpenCollector, new_recorder: NewRecorder):
    """Shutdown does not wait for the next try."""
    with open_collector(unavailable=1000) as collector:
        recorder = new_recorder({**_environ(), "OTEL_BSP_SCHEDULE_DELAY": "1"})
        recorder.request_ended(tale(trace_headers=SAMPLED))
        assert collector.asked.wait(10)
        _shut_down(recorder)
    assert sum(_lost(recorder).values()) == 4


@pytest.mark.usefixtures("lines")
def test_a_slow_collector_gets_everything(open_collector: OpenCollector, new_recorder: NewRecorder):
    """Also what waits when the worker stops, while it takes less than the flush may."""
    with open_collector(late_s=0.2) as collector:
        recorder = new_recorder(_environ())
        for _ in range(3):
            recorder.request_ended(tale(trace_headers=SAMPLED))
        _shut_down(recorder)
        assert len(collector.all_spans) == 12
    assert _lost(recorder) == {}


@pytest.mark.usefixtures("lines")
def test_a_collector_that_keeps_only_part(open_collector: OpenCollector, new_recorder: NewRecorder):
    """The library does not hand on what such an answer says: to us they are delivered (docs/limits.md)."""
    with open_collector(rejected=3) as collector:
        recorder = new_recorder(_environ())
        recorder.request_ended(tale(trace_headers=SAMPLED))
        _shut_down(recorder)
        assert len(collector.all_spans) == 4
    assert _lost(recorder) == {}


class _Scripted(SpanExporter):
    """Does what it is told with each batch."""

    def __init__(
        self, verdict: SpanExportResult | Exception = SpanExportResult.SUCCESS, *, is_stuck: bool = False
    ) -> None:
        self.verdict = verdict
        self.go = Event()
        self.began = Event()
        self.delivered = Semaphore(0)
        self.shutdowns = 0
        self.got: list[ReadableSpan] = []
        if not is_stuck:
            self.go.set()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.began.set()
        # Longer than a test may last: it stays stuck until it is let go.
        self.go.wait(60)
        if isinstance(self.verdict, Exception):
            raise self.verdict
        if self.verdict is SpanExportResult.SUCCESS:
            self.got.extend(spans)
            self.delivered.release(len(spans))
        return self.verdict

    def shutdown(self) -> None:
        self.shutdowns += 1
        self.go.set()


class _Losses(dict[str, int]):
    def __call__(self, reason: str, count: int) -> None:
        self[reason] = self.get(reason, 0) + count


def _spans(count: int) -> list[ReadableSpan]:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import SpanContext, TraceFlags

    context = SpanContext(1, 1, is_remote=False, trace_flags=TraceFlags(1))
    return [ReadableSpan("a", context=context) for _ in range(count)]


_SMALL = TraceSettings(queue_spans=10, batch_spans=5, delay_ms=1)


def test_the_queue_is_bounded_and_never_waits():
    """What finds no room is lost as a whole request; what was in the queue is delivered."""
    exporter, losses = _Scripted(is_stuck=True), _Losses()
    pipeline = Pipeline(_SMALL, exporter, losses)
    pipeline.send(_spans(1))
    assert exporter.began.wait(10)
    for _ in range(5):
        pipeline.send(_spans(4))
    assert losses == {"queue_full": 12}
    exporter.go.set()
    pipeline.shutdown()
    assert (len(exporter.got), losses) == (9, {"queue_full": 12})


@pytest.mark.parametrize("verdict", [SpanExportResult.FAILURE, RuntimeError("broken exporter")])
def test_a_failed_batch_is_counted(verdict: SpanExportResult | Exception):
    """Whether the exporter says so or breaks."""
    losses = _Losses()
    pipeline = Pipeline(_SMALL, _Scripted(verdict), losses)
    pipeline.send(_spans(4))
    pipeline.shutdown()
    assert losses == {"export_failed": 4}


def test_who_is_told_of_a_loss_may_break(caplog: pytest.LogCaptureFixture):
    """The exporter's thread goes on, and the library has nothing to say of it."""
    exporter = _Scripted(SpanExportResult.FAILURE)
    told: list[str] = []

    def broken(reason: str, _count: int) -> None:
        told.append(reason)
        raise RuntimeError("broken listener")

    pipeline = Pipeline(_SMALL, exporter, broken)
    pipeline.send(_spans(4))
    wait_until(lambda: told, "nobody was told")
    exporter.verdict = SpanExportResult.SUCCESS
    pipeline.send(_spans(4))
    pipeline.shutdown()
    assert (told, len(exporter.got), caplog.records) == (["export_failed"], 4, [])


class _FullDisk(logging.Handler):
    """Behind the log; only losses are written to it."""

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "event", None) == "trace.spans_lost":
            raise OSError("no space left")


@pytest.mark.usefixtures("lines")
def test_a_loss_is_counted_also_when_the_log_is_broken(
    open_collector: OpenCollector, new_recorder: NewRecorder
):
    """And so is the line that was not written."""
    logging.getLogger().addHandler(_FullDisk())
    recorder = _refused(open_collector, new_recorder)
    assert _lost(recorder) == {'{reason="export_failed"}': 4}
    assert samples_of(recorder.registry)['telemetry_errors_total{listener="log"}'] == 1


def test_shutdown_delivers_what_waits():
    """A stopping worker does not lose its last requests' spans."""
    exporter, losses = _Scripted(), _Losses()
    pipeline = Pipeline(TraceSettings(delay_ms=60_000), exporter, losses)
    pipeline.send(_spans(7))
    pipeline.shutdown()
    pipeline.shutdown()
    assert (len(exporter.got), losses, exporter.shutdowns) == (7, {}, 1)


def test_after_shutdown_spans_are_lost_by_name():
    """Late ones are counted, and nobody raises."""
    losses = _Losses()
    pipeline = Pipeline(_SMALL, _Scripted(), losses)
    pipeline.shutdown()
    pipeline.send(_spans(3))
    assert losses == {"shutdown": 3}


class _Deaf(_Scripted):
    """Does not even hear a shutdown."""

    def shutdown(self) -> None:
        self.shutdowns += 1
        self.go.wait(60)


def test_shutdown_gives_up_on_an_exporter_that_does_not_let_go():
    """What it was given and what still waited is lost, once, also when it succeeds later."""
    exporter, losses = _Deaf(is_stuck=True), _Losses()
    pipeline = Pipeline(_SMALL, exporter, losses)
    pipeline.send(_spans(8))
    assert exporter.began.wait(10)
    began_s = time.monotonic()
    # It returns while the exporter is stuck, and not before it has given it its time.
    pipeline.shutdown()
    assert time.monotonic() - began_s >= FLUSH_S + LET_GO_S
    assert (exporter.shutdowns, exporter.go.is_set()) == (1, False)
    assert losses == {"shutdown": 8}
    exporter.go.set()
    assert all(exporter.delivered.acquire(timeout=10) for _ in range(8))
    assert losses == {"shutdown": 8}


def test_export_is_off_unless_it_is_asked_for():
    """The framework's switch, and the standard's two."""
    assert read_trace_settings({"OTEL_EXPORT_ENABLED": "1", "OTEL_TRACES_SAMPLER": "always_off"}) is None
    assert read_trace_settings({}) is None
    assert read_trace_settings({"OTEL_EXPORT_ENABLED": "false"}) is None
    assert read_trace_settings({"OTEL_EXPORT_ENABLED": "1", "OTEL_SDK_DISABLED": "true"}) is None
    assert read_trace_settings({"OTEL_EXPORT_ENABLED": "true"}) == TraceSettings()


def test_the_frameworks_variables_choose_the_protocol():
    """That of the traces wins over the general one."""
    environ = {
        "OTEL_EXPORT_ENABLED": "1",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
        "OTEL_BSP_MAX_QUEUE_SIZE": "100",
        "OTEL_BSP_SCHEDULE_DELAY": "250",
    }
    assert read_trace_settings(environ) == TraceSettings(
        protocol="http/protobuf", queue_spans=100, batch_spans=100, delay_ms=250
    )


@pytest.mark.parametrize(
    ("environ", "has_roots"),
    [
        ({"OTEL_TRACES_SAMPLER": "parentbased_always_off"}, False),
        ({"OTEL_TRACES_SAMPLE_RATIO": "0"}, False),
        ({"OTEL_TRACES_SAMPLE_RATIO": "0.5"}, True),
        ({"OTEL_TRACES_SAMPLER": "always_on"}, True),
    ],
)
def test_a_sampler_decides_about_what_begins_here(environ: dict[str, str], *, has_roots: bool):
    """About requests their callers do."""
    settings = read_trace_settings({"OTEL_EXPORT_ENABLED": "1", **environ})
    assert settings == TraceSettings(has_roots=has_roots)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "-1"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "0"),
        ("OTEL_BSP_SCHEDULE_DELAY", "1s"),
        ("OTEL_BSP_SCHEDULE_DELAY", "3600001"),
        ("OTEL_BSP_SCHEDULE_DELAY", "10000000000000000"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "1000001"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "100000000000000000000"),
    ],
)
def test_what_cannot_be_followed_stops_the_start(name: str, value: str):
    """By the variable's name, its value, and what is allowed."""
    with pytest.raises(ConfigError, match=f"{name}: value '{value}': ") as refused:
        read_trace_settings({"OTEL_EXPORT_ENABLED": "1", name: value})
    if "_BSP_" in name:
        unit = "milliseconds, 1 to 3600000" if "DELAY" in name else "spans, 1 to 1000000"
        assert str(refused.value).endswith(f": a whole number of {unit}")


@pytest.mark.parametrize("name", ["OTEL_BSP_SCHEDULE_DELAY", "OTEL_BSP_MAX_QUEUE_SIZE"])
def test_a_number_that_python_does_not_read_stops_the_start_too(name: str):
    """Thousands of digits, in an error that is short."""
    with pytest.raises(ConfigError, match=f"^{name}: value '9") as refused:
        read_trace_settings({"OTEL_EXPORT_ENABLED": "1", name: "9" * 5000})
    assert len(str(refused.value)) < 400


def test_the_largest_that_can_be_followed_are_followed():
    """An hour, a million spans; the exporter's thread lives and delivers at the end."""
    environ = {"OTEL_BSP_SCHEDULE_DELAY": "3600000", "OTEL_BSP_MAX_QUEUE_SIZE": "1000000"}
    settings = TraceSettings(queue_spans=1_000_000, delay_ms=3_600_000)
    assert read_trace_settings({"OTEL_EXPORT_ENABLED": "1", **environ}) == settings
    exporter, losses = _Scripted(), _Losses()
    pipeline = Pipeline(settings, exporter, losses)
    pipeline.send(_spans(1000))
    pipeline.shutdown()
    assert (len(exporter.got), losses) == (1000, {})


@pytest.mark.parametrize(
    ("name", "value"), [("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"), ("OTEL_EXPORTER_OTLP_COMPRESSION", "zip")]
)
def test_what_the_exporter_cannot_follow_stops_the_start_too(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
):
    """In its words, without a traceback."""
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=rf"OTEL_EXPORTER_OTLP_\*: the exporter says: .*{value}"):
        build_exporter("grpc")
