"""A recorder around nothing but itself, its log, and collectors of both protocols."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from service.telemetry.recorder import Recorder, RecorderSettings, build_recorder
from service.telemetry.repeats import RepeatLimiter
from tests.service.telemetry.collectors import grpc_collector, http_collector
from tests.service.telemetry.readings import all_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from contextlib import AbstractContextManager

    from tests.service.telemetry.collectors import Collector
    from tests.service.telemetry.readings import Lines

    OpenCollector = Callable[..., AbstractContextManager[Collector]]
    NewRecorder = Callable[..., Recorder]

_COLLECTORS = {"grpc": grpc_collector, "http/protobuf": http_collector}


@pytest.fixture(autouse=True)
def _nothing_said_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test hears the first of all repeated lines, in words, and nobody's export settings."""
    import os

    monkeypatch.setattr("service.telemetry.logs._LIMITER", RepeatLimiter())
    monkeypatch.setattr("service.telemetry.logs._FORM.is_json", False)
    for name in [name for name in os.environ if name.startswith("OTEL_")] + ["DYN_LOGGING_JSONL"]:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def lines() -> Iterator[Lines]:
    """Every record that reaches the root logger, from DEBUG up."""
    with all_lines() as heard:
        yield heard


@pytest.fixture
def new_recorder() -> Iterator[NewRecorder]:
    """Recorders that are shut down after the test; spans are on when a collector is given."""
    made: list[Recorder] = []

    def new(environ: dict[str, str] | None = None, **changes: Any) -> Recorder:
        settings = {"engine": "synthetic", "framework_version": "1.4.2", "version": "9.9.9", **changes}
        recorder = build_recorder(RecorderSettings(environ=environ or {}, **settings))
        made.append(recorder)
        return recorder

    yield new
    for recorder in made:
        recorder.shutdown()


@pytest.fixture(params=sorted(_COLLECTORS))
def protocol(request: pytest.FixtureRequest) -> str:
    """Both protocols the framework knows."""
    return str(request.param)


@pytest.fixture
def open_collector(protocol: str, monkeypatch: pytest.MonkeyPatch) -> OpenCollector:
    """A collector, and the environment that sends spans there."""

    @contextmanager
    def open_one(**mood: bool) -> Generator[Collector, None, None]:
        with _COLLECTORS[protocol](**mood) as collector:
            for name, value in export_to(collector.endpoint, protocol).items():
                monkeypatch.setenv(name, value)
            yield collector

    return open_one


def export_to(endpoint: str, protocol: str) -> dict[str, str]:
    """The framework's variables for this collector."""
    return {
        "OTEL_EXPORT_ENABLED": "1",
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
    }
