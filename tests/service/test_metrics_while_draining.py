"""Metrics while the worker goes: they answer at every moment, and no counter ever falls."""

from __future__ import annotations

import itertools
import threading
import time
from typing import TYPE_CHECKING

from dynamo.common.utils.prometheus import gather_with_labels

from protocols.telemetry import WorkerState
from service.telemetry.recorder import RecorderSettings, build_recorder
from tests.doubles.callers import wire_request
from tests.service.worker import budgets, synthetic

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from tests.service.conftest import OpenWorker

# A scrape that takes longer hangs; the slowest one of a run takes milliseconds.
PATIENCE_S = 10.0
LABELS = {"dynamo_namespace": "test", "worker_id": "7"}


class Scraper:
    """Reads what the framework would append to its page, again and again, in a thread of its own."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.pages: list[dict[str, float]] = []
        self.slowest_s = 0.0
        self.failure: BaseException | None = None

    def __enter__(self) -> Scraper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "a scrape hangs"

    def scrape(self) -> dict[str, float]:
        """One page."""
        began_s = time.monotonic()
        page = gather_with_labels(self._registry, LABELS, prefix_filters=["dynamo_actor_"])
        self.slowest_s = max(self.slowest_s, time.monotonic() - began_s)
        lines = (line.rpartition(" ") for line in page.splitlines() if not line.startswith("#"))
        return {series: float(value) for series, _, value in lines}

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                self.pages.append(self.scrape())
        except BaseException as exc:
            self.failure = exc


def falls(pages: list[dict[str, float]]) -> list[str]:
    """Counters, and the counts, sums and buckets of histograms, that were higher on an earlier page."""
    found: set[str] = set()
    for before, after in itertools.pairwise(pages):
        assert before.keys() == after.keys()
        for series, value in after.items():
            name = series.partition("{")[0]
            if name.endswith(("_total", "_count", "_sum", "_bucket")) and value < before[series]:
                found.add(series)
    return sorted(found)


def test_metrics_answer_until_the_end_and_no_counter_falls(open_worker: OpenWorker) -> None:
    """Serving, draining by hand with a budget that is too small, resumed, stopping, and stopped (row 18)."""
    recorder = build_recorder(
        RecorderSettings(engine="synthetic", framework_version="0", version="0", environ={})
    )
    arrangement = {"recorder": recorder, "drain": budgets(drain_s=0.5, return_by_s=3.0)}
    with open_worker(synthetic(1.0), **arrangement) as worker:
        # As the framework, which asks for our registry when the engine has started.
        worker.open()
        with Scraper(recorder.registry) as scraper:
            served = [worker.ask(wire_request(max_tokens=30)) for _ in range(8)]
            for call in served:
                assert call.read_to_end().finish_reasons == ["length"]
            endless = [worker.ask(wire_request(max_tokens=1900)) for _ in range(4)]
            worker.until(lambda: worker.graph.ledger.admitted == 4)
            draining = worker.loop.begin(worker.facade.engine_control("drain", {"timeout_s": 0.3}))
            worker.until(lambda: worker.graph.drain.state is WorkerState.DRAINING)
            seen = len(scraper.pages)
            worker.until(lambda: len(scraper.pages) > seen)
            for call in endless:
                call.read_to_end()
            assert draining.result(PATIENCE_S)["interrupted"] == 4
            worker.control("resume")
            last = worker.ask(wire_request(max_tokens=1900))
            worker.until(lambda: worker.graph.ledger.admitted == 1)
            worker.send_signal()
            worker.cleanup()
            last.read_to_end()
            seen = len(scraper.pages)
            worker.until(lambda: len(scraper.pages) > seen + 1)
    assert scraper.failure is None
    assert falls(scraper.pages) == []
    page = scraper.pages[-1]
    labels = ",".join(f'{name}="{value}"' for name, value in LABELS.items())
    names = ("requests_moved_total", "requests_live", "drain_seconds_count")
    figures = {name: page[f"dynamo_actor_{name}{{{labels}}}"] for name in names}
    assert figures == {"requests_moved_total": 5, "requests_live": 0, "drain_seconds_count": 2}
    print(f"{len(scraper.pages)} pages, the slowest {scraper.slowest_s * 1e3:.0f} ms")


def test_a_fall_is_found() -> None:
    """This test can fail; a gauge may fall."""
    pages = [
        {"a_total{}": 2.0, "b_count{}": 1.0, "live{}": 5.0},
        {"a_total{}": 1.0, "b_count{}": 1.0, "live{}": 0.0},
    ]
    assert falls(pages) == ["a_total{}"]
