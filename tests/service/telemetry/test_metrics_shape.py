"""Figures in TensorRT-LLM's shape: its names, types and labels, and nothing that is not known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from protocols.engine import EngineInfo
from protocols.errors import FailureCause
from protocols.rejections import RejectReason
from protocols.steps import EngineStep
from protocols.telemetry import CancelReason, Outcome, Phase
from service.telemetry.figures import figures_of
from service.telemetry.metrics import Metrics
from tests.service.telemetry.readings import changes, samples_of
from tests.service.telemetry.tales import tale, tale_of_each, tale_of_refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actors.mailbox import Mailbox
    from protocols.telemetry import RequestStory

_PREFIX = "dynamo_actor_trtllm_"
_BOTH = ("engine_type", "model_name")
# As TensorRT-LLM has them: name without its prefix, type, labels.
_OF_ALL = {
    "request_success": ("counter", (*_BOTH, "finished_reason")),
    "request_error": ("counter", (*_BOTH, "http_code")),
    "prompt_tokens": ("counter", _BOTH),
    "generation_tokens": ("counter", _BOTH),
    "prompt_cached_tokens": ("counter", _BOTH),
    "num_requests_completed": ("counter", _BOTH),
    "num_aborted_requests": ("counter", _BOTH),
    "e2e_request_latency_seconds": ("histogram", _BOTH),
    "time_to_first_token_seconds": ("histogram", _BOTH),
    "time_per_output_token_seconds": ("histogram", _BOTH),
    "request_queue_time_seconds": ("histogram", _BOTH),
    "request_prefill_time_seconds": ("histogram", _BOTH),
    "request_decode_time_seconds": ("histogram", _BOTH),
    "request_inference_time_seconds": ("histogram", _BOTH),
    "num_requests_running": ("gauge", _BOTH),
    "num_requests_waiting": ("gauge", _BOTH),
    "iteration_latency_seconds": ("gauge", _BOTH),
    "model_config_info": ("gauge", (*_BOTH, "model", "served_model_name", "max_model_len")),
    "parallel_config_info": (
        "gauge",
        (*_BOTH, *(f"{kind}_parallel_size" for kind in ("tensor", "pipeline", "context", "expert"))),
    ),
}
_OF_A_CACHE = {
    "kv_cache_reused_blocks": ("counter", _BOTH),
    "kv_cache_missed_blocks": ("counter", _BOTH),
    "kv_cache_hit_rate": ("gauge", _BOTH),
    "kv_cache_utilization": ("gauge", _BOTH),
    "kv_cache_max_blocks": ("gauge", _BOTH),
    "kv_cache_free_blocks": ("gauge", _BOTH),
    "kv_cache_used_blocks": ("gauge", _BOTH),
    "kv_cache_tokens_per_block": ("gauge", _BOTH),
    "kv_cache_config_info": ("gauge", (*_BOTH, "page_size", "enable_block_reuse", "enable_partial_reuse")),
}


class _Books:
    live_count = 9


class _Holding:
    running_requests = 4
    running_sequences = 5
    waiting_requests = 3


class _Graph:
    ledger = _Books()
    executor = _Holding()
    info = EngineInfo(
        model="llama", context_length=128, max_num_seqs=8, vocab_size=9, block_tokens=4, total_blocks=50
    )

    def mailboxes(self) -> Sequence[Mailbox]:
        return []


def _new_metrics(engine: str = "torch") -> Metrics:
    metrics = Metrics(version="1", engine=engine, framework_version="1.4.2", model="served")
    metrics.watch(_Graph())
    return metrics


def _shape(metrics: Metrics) -> dict[str, float]:
    """Its samples by name, with those labels that not all of them have."""
    found: dict[str, float] = {}
    for family in metrics.registry.collect():
        for sample in family.samples if family.name.startswith(_PREFIX) else ():
            assert (sample.labels["engine_type"], sample.labels["model_name"]) == ("torch", "served")
            own = {label: value for label, value in sample.labels.items() if label not in _BOTH}
            labels = ",".join(f'{label}="{value}"' for label, value in sorted(own.items()))
            found[sample.name.removeprefix(_PREFIX) + (f"{{{labels}}}" if labels else "")] = sample.value
    return found


def _end(metrics: Metrics, story: RequestStory) -> dict[str, float]:
    """What the end of a request moved in the shape."""
    before = _shape(metrics)
    metrics.request_ended(story, figures_of(story))
    return changes(before, _shape(metrics))


@pytest.mark.parametrize(
    ("engine", "names"),
    [("torch", {**_OF_ALL, **_OF_A_CACHE}), ("synthetic", _OF_ALL), ("trtllm", {})],
    ids=["torch", "synthetic", "trtllm"],
)
def test_names_types_and_labels_are_those_of_tensorrt_llm(engine: str, names: dict[str, Any]):
    """Of engines of ours; where there is no cache, none of its figures; TensorRT-LLM brings its own."""
    found = {
        family.name.removeprefix(_PREFIX): (family.type, {*family.samples[0].labels} - {"le"})
        for family in _new_metrics(engine).registry.collect()
        if family.name.startswith(_PREFIX)
    }
    assert found == {name: (kind, set(labels)) for name, (kind, labels) in names.items()}


def test_every_name_is_there_before_the_engine_has_started():
    """And every series but for what only a started engine says about itself."""
    early = Metrics(version="1", engine="torch", framework_version="1.4.2", model="served")
    started = _new_metrics()
    assert [family.name for family in early.registry.collect()] == [
        family.name for family in started.registry.collect()
    ]
    born = samples_of(started.registry).keys() - samples_of(early.registry).keys()
    assert {name.partition("{")[0] for name in born} == {
        "trtllm_model_config_info",
        "trtllm_kv_cache_config_info",
    }


def test_a_served_request_moves_exactly_these():
    """12 tokens of prompt are three blocks, one of them from the cache; prefill, decode and queue add up."""
    assert _end(_new_metrics(), tale(finish_reason="eos")) == {
        'request_success_total{finished_reason="stop"}': 1,
        "prompt_tokens_total": 12,
        "prompt_cached_tokens_total": 4,
        "num_requests_completed_total": 1,
        "e2e_request_latency_seconds_count": 1,
        "e2e_request_latency_seconds_sum": 2.5,
        "time_to_first_token_seconds_count": 1,
        "time_to_first_token_seconds_sum": 0.5,
        "time_per_output_token_seconds_count": 1,
        "time_per_output_token_seconds_sum": 0.25,
        "request_queue_time_seconds_count": 1,
        "request_queue_time_seconds_sum": 0.25,
        "request_prefill_time_seconds_count": 1,
        "request_prefill_time_seconds_sum": 0.25,
        "request_decode_time_seconds_count": 1,
        "request_decode_time_seconds_sum": 2.0,
        "request_inference_time_seconds_count": 1,
        "request_inference_time_seconds_sum": 2.25,
        "kv_cache_reused_blocks_total": 1,
        "kv_cache_missed_blocks_total": 2,
        "kv_cache_hit_rate": 1 / 3,
    }


@pytest.mark.parametrize("story", tale_of_each(), ids=lambda story: story.outcome.value)
def test_every_request_is_a_success_or_an_error(story: RequestStory):
    """Once, and its duration counts only if it got all it asked for."""
    metrics = _new_metrics()
    story = tale(
        story.outcome,
        story.phase,
        finish_reason=story.finish_reason,
        failure_cause=FailureCause.ENGINE if story.outcome is Outcome.FAILED else None,
        reject_reason=story.reject_reason,
    )
    _end(metrics, story)
    found = _shape(metrics)
    kinds = ("request_success_total", "request_error_total")
    assert sum(value for name, value in found.items() if name.startswith(kinds)) == 1
    is_served = story.outcome in {Outcome.COMPLETED, Outcome.STOPPED_BY_FRONTEND}
    assert found["num_requests_completed_total"] == is_served
    assert found["e2e_request_latency_seconds_count"] == is_served


@pytest.mark.parametrize(
    ("outcome", "cause", "code"),
    [
        (Outcome.DEADLINE, None, "504"),
        (Outcome.STALLED, None, "500"),
        (Outcome.INTERRUPTED, None, "503"),
        (Outcome.FAILED, FailureCause.ENGINE, "500"),
        (Outcome.FAILED, FailureCause.DEAD, "503"),
    ],
)
def test_an_error_has_the_status_it_stands_for(outcome: Outcome, cause: FailureCause | None, code: str):
    """Whatever a frontend makes of it."""
    moved = _end(_new_metrics(), tale(outcome, Phase.PREFILL, failure_cause=cause))
    assert {name: value for name, value in moved.items() if "error" in name} == {
        f'request_error_total{{http_code="{code}"}}': 1
    }


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (RejectReason.INVALID_REQUEST, "400"),
        (RejectReason.MAX_LIVE, "429"),
        (RejectReason.DRAINING, "503"),
        (RejectReason.OTHER, "500"),
    ],
)
def test_a_refusal_has_the_status_it_stands_for(reason: RejectReason, code: str):
    """Wrong, too much, or too late."""
    metrics = _new_metrics()
    before = _shape(metrics)
    story = tale_of_refusal(reason)
    metrics.request_ended(story, figures_of(story))
    assert changes(before, _shape(metrics)) == {f'request_error_total{{http_code="{code}"}}': 1}


def test_an_aborted_request_is_counted():
    """Those that somebody else ended are not: a deadline is no abort."""
    metrics = _new_metrics()
    before = _shape(metrics)
    metrics.request_cancelled(CancelReason.CLIENT, Phase.DECODE)
    metrics.request_cancelled(CancelReason.DEADLINE, Phase.DECODE)
    assert changes(before, _shape(metrics)) == {"num_aborted_requests_total": 1}


def test_a_step_moves_exactly_these():
    """Tokens as they come, the last iteration, and the blocks after it."""
    metrics = _new_metrics()
    before = _shape(metrics)
    metrics.step_done(EngineStep([], 1.0, 1.5, used_blocks=10, cached_blocks=5), tokens=3)
    assert changes(before, _shape(metrics)) == {
        "generation_tokens_total": 3,
        "iteration_latency_seconds": 0.5,
        "kv_cache_used_blocks": 10,
        "kv_cache_free_blocks": -10,
        "kv_cache_utilization": 0.2,
    }


def test_new_counts_alone_are_no_iteration():
    """The last one stays as long as it was."""
    metrics = _new_metrics()
    metrics.step_done(EngineStep([], 1.0, 1.5, used_blocks=10), tokens=0)
    before = _shape(metrics)
    metrics.step_done(EngineStep([], 9.0, 9.0, is_iteration=False), tokens=0)
    assert changes(before, _shape(metrics)) == {
        "kv_cache_used_blocks": -10,
        "kv_cache_free_blocks": 10,
        "kv_cache_utilization": -0.2,
    }


def test_the_last_step_stays_until_the_graph_is_closed():
    """Then there is no engine whose step it could be."""
    metrics = _new_metrics()
    before = _shape(metrics)
    metrics.step_done(EngineStep([], 1.0, 1.5, used_blocks=10), tokens=0)
    metrics.step_done(EngineStep([], 2.0, 2.25), tokens=0)
    assert changes(before, _shape(metrics)) == {"iteration_latency_seconds": 0.25}
    metrics.graph_closed()
    assert _shape(metrics)["iteration_latency_seconds"] == 0


def test_the_engines_own_words_are_in_its_labels():
    """What is live is read when asked; what is fixed stands in labels of a constant."""
    found = _shape(_new_metrics())
    assert (found["num_requests_running"], found["num_requests_waiting"]) == (4, 3)
    assert (found["kv_cache_max_blocks"], found["kv_cache_tokens_per_block"]) == (50, 4)
    infos = [name for name in found if "_info" in name]
    assert sorted(infos) == [
        'kv_cache_config_info{enable_block_reuse="True",enable_partial_reuse="False",page_size="4"}',
        'model_config_info{max_model_len="128",model="llama",served_model_name="served"}',
        'parallel_config_info{context_parallel_size="1",expert_parallel_size="1",'
        'pipeline_parallel_size="1",tensor_parallel_size="1"}',
    ]


def test_its_histograms_say_what_ours_say():
    """The same observations under both names, so that nobody has to ask which of them is right."""
    metrics = _new_metrics()
    for story in tale_of_each():
        metrics.request_ended(story, figures_of(story))
    ours, theirs = samples_of(metrics.registry), _shape(metrics)
    for name, other in (
        ("queue_seconds", "request_queue_time_seconds"),
        ("time_to_first_token_seconds", "time_to_first_token_seconds"),
        ("time_per_output_token_seconds", "time_per_output_token_seconds"),
    ):
        assert ours[f"{name}_count"] == theirs[f"{other}_count"] > 0
        assert ours[f"{name}_sum"] == theirs[f"{other}_sum"]
