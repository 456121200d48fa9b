"""Several workers in a process, several processes of an engine: each series once, nobody else's figures."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from protocols.rejections import RejectReason
from service.telemetry.families import Counters, Gauges, Histograms
from service.telemetry.figures import figures_of
from service.telemetry.metrics import Metrics
from service.telemetry.request_metrics import RequestMetrics
from tests.service.telemetry.many_processes import DASHES
from tests.service.telemetry.readings import samples_of
from tests.service.telemetry.tales import tale_of_refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

_ROOT = Path(__file__).parents[3]


def _new_metrics() -> Metrics:
    return Metrics(version="1", engine="torch", framework_version="1.4.2", model="m")


def _pages(folder: Path | None) -> list[str]:
    """Of both workers; with a folder, in the library's mode for many processes."""
    environ: Mapping[str, str] = {"PROMETHEUS_MULTIPROC_DIR": str(folder)} if folder is not None else {}
    program = [sys.executable, "-m", "tests.service.telemetry.many_processes"]
    done = subprocess.run(
        program, env={**os.environ, **environ}, check=True, cwd=_ROOT, capture_output=True, text=True
    )
    return done.stdout.split(f"{DASHES}\n")


def _values(page: str) -> dict[str, float]:
    return {
        sample.name + str(sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def test_two_workers_in_one_process_share_nothing():
    """Each has its registry, and neither touches the library's global one."""
    one, two = _new_metrics(), _new_metrics()
    story = tale_of_refusal(RejectReason.DRAINING)
    one.request_ended(story, figures_of(story))
    assert samples_of(one.registry)['rejected_total{reason="draining"}'] == 1
    assert samples_of(two.registry)['rejected_total{reason="draining"}'] == 0
    assert not any(family.name.startswith("dynamo_actor") for family in REGISTRY.collect())


def test_a_second_worker_begins_at_nothing_where_files_are_shared(tmp_path: Path):
    """The library would give it what the first one has counted."""
    _, second = _pages(tmp_path)
    not_at_rest = {
        name: value
        for name, value in _values(second).items()
        if value and not name.startswith("dynamo_actor_trtllm_parallel_config_info")
    }
    assert [name.partition("[")[0] for name in not_at_rest] == [
        "dynamo_actor_build_info",
        "dynamo_actor_worker_state",
    ]


def test_what_is_counted_is_the_same_where_files_are_shared(tmp_path: Path):
    """Each figure of the first worker, whatever the library's mode."""
    alone, shared = _values(_pages(None)[0]), _values(_pages(tmp_path)[0])
    assert {name: value for name, value in shared.items() if name.startswith("dynamo_actor_")} == {
        name: value for name, value in alone.items() if name.startswith("dynamo_actor_")
    }
    assert sum(value for name, value in shared.items() if "requests_total" in name) == 4


def test_the_engines_library_and_ours_meet_on_one_page(tmp_path: Path):
    """The child's figures come through its files; no family and no series is there twice."""
    page, _ = _pages(tmp_path)
    lines = page.splitlines()
    types = Counter(line.split()[2] for line in lines if line.startswith("# TYPE"))
    series = Counter(line.rpartition(" ")[0] for line in lines if line and not line.startswith("#"))
    assert [name for name, count in (types + series).items() if count > 1] == []
    assert _values(page)["trtllm_steps_total[('model', 'm'), ('model_name', 'm'), ('worker_id', '1f')]"] == 3


def test_no_figure_of_ours_lies_in_the_shared_files(tmp_path: Path):
    """So a process that starts with the pid of a dead one, as in a container, finds nothing of it."""
    _pages(tmp_path)
    files = list(tmp_path.iterdir())
    assert files
    assert [file.name for file in files if b"dynamo_actor" in file.read_bytes()] == []


@pytest.mark.parametrize("make", [RequestMetrics, lambda registry: Gauges(registry, "requests", "Twice.")])
def test_a_name_is_registered_once(make: type[RequestMetrics]):
    """Also by a family of another type whose series would have the same names."""
    registry = CollectorRegistry()
    RequestMetrics(registry)
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        make(registry)


def test_a_histogram_counts_a_value_at_its_bound_below_it():
    """As Prometheus means ``le``; what is above all bounds is in the last bucket alone."""
    registry = CollectorRegistry()
    child = Histograms(registry, "wait_seconds", "Waits.", (0.5, 1.0)).of()
    for value in (0.5, 0.75, 1.0, 7.0):
        child.observe(value)
    assert samples_of(registry) == {
        'wait_seconds_bucket{le="0.5"}': 1,
        'wait_seconds_bucket{le="1.0"}': 3,
        'wait_seconds_bucket{le="+Inf"}': 4,
        "wait_seconds_count": 4,
        "wait_seconds_sum": 9.25,
    }


def test_labels_are_given_all_or_not_at_all():
    """A child with a label too few would be another family."""
    counters = Counters(CollectorRegistry(), "things_total", "Things.", "kind")
    with pytest.raises(ValueError, match="kind"):
        counters.of()
