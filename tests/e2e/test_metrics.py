"""The framework's ``/metrics`` page of a real worker, as a real Prometheus reads it."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from protocols.engine import EngineCapabilities, Figure
from service.telemetry.families import PREFIX
from service.telemetry.metrics import Metrics
from tests.built_in import built_in_model
from tests.doubles.maintenance import MoodyMaintenance
from tests.e2e.at_rest import is_at_rest
from tests.e2e.engines import Served
from tests.e2e.prometheus import Prometheus
from tests.e2e.servers import tool
from tests.e2e.stacks import Stack, hang_up
from tests.e2e.tiny_model import write_tiny_model

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.timeout(180)]

SLOTS = 2
PROMPT, PROMPT_TOKENS, ANSWER_TOKENS = "one two three", 3, 5
# What the framework's bridge, Prometheus and TensorRT-LLM's shape add to every series.
ADDED = {
    "__name__", "job", "instance", "dynamo_namespace", "dynamo_component", "dynamo_endpoint", "worker_id",
    "model", "model_name", "engine_type",
}  # fmt: skip
OURS = f'{{__name__=~"{PREFIX}.+"}}'
RISING = ("_total", "_count", "_sum", "_bucket")
PASSING = ("dynamo_component_uptime_seconds", f"{PREFIX}loop_lag_")


@dataclass(frozen=True)
class Scene:
    """A worker behind a frontend, a Prometheus that watches it, and its page before anybody had asked."""

    stack: Stack
    prometheus: Prometheus
    first_page: str
    shared: Path

    def page(self) -> str:
        """One scrape."""
        status, text = self.stack.workers[0].system.get("/metrics")
        assert status == 200
        return text


@pytest.fixture(scope="module")
def scene(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A real engine with a tiny model, where the library of an engine shares files between processes."""
    folder = tmp_path_factory.mktemp("metrics")
    shared = folder / "shared"
    shared.mkdir()
    model = write_tiny_model(folder / "model", built_in_model())
    options = ["--max-num-seqs", str(SLOTS), "--logits-processor", "only-a=tests.e2e.processors:Forcing"]
    environ = {"PROMETHEUS_MULTIPROC_DIR": str(shared)}
    with served.stack_with_weights(folder / "stack", model, *options, environ=environ) as stack:
        status, first_page = stack.workers[0].system.get("/metrics")
        assert status == 200
        prometheus = Prometheus(folder / "prometheus", stack.workers[0].port)
        yield Scene(stack, prometheus, first_page, shared)
        prometheus.stop()


def expected_metrics(served: Served) -> Metrics:
    """What such a worker has. Nobody asks for TensorRT-LLM's statistics here, and its memories can sleep."""
    if not served.is_trtllm:
        return Metrics(version="1", engine="torch", framework_version="1")
    can = EngineCapabilities(untold=frozenset(Figure))
    metrics = Metrics(version="1", engine="trtllm", framework_version="1", capabilities=can)
    metrics.watch_memories(MoodyMaintenance(list))
    return metrics


def by_series(page: str) -> dict[str, float]:
    """Our samples, each by its name without the prefix and its own labels."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples if family.name.startswith(PREFIX) else ():
            found[series(sample.name, sample.labels)] = sample.value
    return found


def series(name: str, labels: Mapping[str, str]) -> str:
    """Without what the framework, Prometheus and TensorRT-LLM's shape add to every one."""
    own = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()) if label not in ADDED)
    return name.removeprefix(PREFIX) + (f"{{{own}}}" if own else "")


def ask_all(scene: Scene) -> None:
    """One that gets all it asks for, one that is refused, one whose client goes; until all are at rest."""
    stack, worker = scene.stack, scene.stack.workers[0]
    status, body = stack.complete(PROMPT, max_tokens=ANSWER_TOKENS, ignore_eos=True)
    assert (status, body["usage"]["prompt_tokens"]) == (200, PROMPT_TOKENS)
    stack.complete(PROMPT, max_tokens=ANSWER_TOKENS, n=SLOTS + 1)
    hang_up(stack.http_port, stack.model(), PROMPT, 300, max_tokens=1900, ignore_eos=True)
    worker.wait_status(lambda state: state["started"] == 3 and is_at_rest(state))


def test_everything_is_served_before_the_first_request(served: Served, scene: Scene) -> None:
    """Every family and series, with the framework's labels; nothing is counted: no warm-up, no probe."""
    expected = expected_metrics(served)
    named = {family.name for family in expected.registry.collect()}
    families = [
        family
        for family in text_string_to_metric_families(scene.first_page)
        if family.name.startswith(PREFIX)
    ]
    assert {family.name for family in families} == named
    assert [family.name for family in families if not family.samples] == []
    for sample in (sample for family in families for sample in family.samples):
        assert sample.labels.keys() >= {"dynamo_namespace", "dynamo_component", "worker_id", "model"}
        assert sample.labels["model_name"] == scene.stack.model()
        assert "" not in sample.labels.values()
        if sample.name.endswith(RISING) and "loop_lag" not in sample.name:
            assert sample.value == 0, sample


def test_no_family_and_no_series_is_there_twice(scene: Scene) -> None:
    """On the whole page, the framework's own figures included."""
    lines = scene.page().splitlines()
    named = Counter(line for line in lines if line.startswith("# TYPE"))
    named += Counter(line.rpartition(" ")[0] for line in lines if line and not line.startswith("#"))
    assert [name for name, count in named.items() if count > 1] == []


def test_promtool_has_nothing_to_say(scene: Scene) -> None:
    """About the page as it is served."""
    program = [tool("promtool"), "check", "metrics"]
    done = subprocess.run(program, input=scene.page(), capture_output=True, check=False, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_prometheus_reads_what_became_of_known_requests(served: Served, scene: Scene) -> None:
    """One completed, one refused, one cancelled: each in every figure that tells of it, and in no other."""
    ask_all(scene)
    requests = f'{PREFIX}requests_total{{outcome="cancelled"}}'
    last = scene.prometheus.last
    scene.prometheus.wait(lambda: sum(last(requests).values()) == 1, "the figures do not come")
    found = {series(json.loads(one)["__name__"], json.loads(one)): value for one, value in last(OURS).items()}
    counted = {
        name: value
        for name, value in found.items()
        if value and name.startswith(("requests_", "rejected_", "cancellations_", "failed_", "aborts_"))
    }
    assert counted == {
        'requests_total{outcome="completed"}': 1,
        'requests_total{outcome="refused"}': 1,
        'requests_total{outcome="cancelled"}': 1,
        'rejected_total{reason="invalid_request"}': 1,
        'cancellations_total{phase="decode",reason="client"}': 1,
        'aborts_total{result="asked"}': 1,
        'aborts_total{result="confirmed"}': 1,
    }
    assert found["request_seconds_count"] == 3
    assert found["queue_seconds_count"] == found["time_to_first_token_seconds_count"] == 2
    assert found["time_per_output_token_seconds_count"] == 1
    assert found['tokens_total{direction="output"}'] > ANSWER_TOKENS
    assert 0 < found["chunks_total"] <= found['tokens_total{direction="output"}'] + 3
    assert found["engine_steps_total"] == found["engine_step_seconds_count"] > ANSWER_TOKENS
    # TensorRT-LLM has that shape by itself, where its own figures are asked for.
    if not served.is_trtllm:
        check_shape(found)


def check_shape(found: dict[str, float]) -> None:
    """The same in TensorRT-LLM's shape; a client that leaves is no error."""
    assert sum(value for name, value in found.items() if name.startswith("trtllm_request_error")) == 1
    assert found['trtllm_request_success_total{finished_reason="length"}'] == 1
    assert found['trtllm_request_success_total{finished_reason="cancelled"}'] == 1
    assert found['trtllm_request_error_total{http_code="400"}'] == 1
    assert found["trtllm_num_requests_completed_total"] == found["trtllm_num_aborted_requests_total"] == 1
    assert found["trtllm_e2e_request_latency_seconds_count"] == 1
    assert found["trtllm_generation_tokens_total"] == found['tokens_total{direction="output"}']
    assert found["trtllm_prompt_tokens_total"] == found['tokens_total{direction="input"}'] > PROMPT_TOKENS
    assert found["trtllm_kv_cache_missed_blocks_total"] >= 2


def test_an_idle_worker_serves_the_same_page_again(served: Served, scene: Scene) -> None:
    """But for the time it is up and how its loop wakes: nothing moves, and no gauge is left over."""
    first, before, after = by_series(scene.first_page), scene.page(), scene.page()
    lines = [line for line in before.splitlines() if not line.startswith(PASSING)]
    assert lines == [line for line in after.splitlines() if not line.startswith(PASSING)]
    ours = by_series(after)
    assert ours.keys() == first.keys()
    left = {
        name for name in ours if not name.partition("{")[0].endswith(RISING) and ours[name] != first[name]
    }
    assert {name.partition("{")[0] for name in left} <= {
        "loop_lag_last_seconds",
        "trtllm_iteration_latency_seconds",
        "trtllm_kv_cache_hit_rate",
        # Kept for reuse or free: what requests used is given back.
        "kv_blocks",
    }
    assert ours.get('kv_blocks{state="used"}') == (None if served.is_trtllm else 0)


def test_none_of_our_figures_lies_in_the_files_that_processes_share(scene: Scene) -> None:
    """The worker was started in the library's mode for many processes; ours are numbers of its own."""
    files = list(scene.shared.iterdir())
    assert [file.name for file in files if PREFIX.encode() in file.read_bytes()] == []
