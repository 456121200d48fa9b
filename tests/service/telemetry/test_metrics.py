"""Metrics: exact, all there from the start, bounded, and readable by Prometheus."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from protocols.bounds import Bound
from protocols.engine import EngineCapabilities, EngineInfo
from protocols.errors import FailureCause
from protocols.rejections import RejectReason
from protocols.steps import EngineId, EngineStep, ProcessorUse
from protocols.telemetry import AbortResult, CancelReason, Outcome, Phase, WorkerState
from service.telemetry.figures import figures_of
from service.telemetry.metrics import SPAN_LOSSES, Metrics
from tests.service.telemetry.readings import changes, samples_of
from tests.service.telemetry.tales import tale, tale_of_abort, tale_of_each, tale_of_refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actors.mailbox import Mailbox

CAN = EngineCapabilities(processors=frozenset({"cool", "warm"}))
_PROMTOOL = Path(__file__).parents[3] / ".tools" / "bin" / "promtool"


def _new_metrics(engine: str = "trtllm") -> Metrics:
    """By default of an engine that brings its own figures: ours alone."""
    return Metrics(version="9.9.9", engine=engine, framework_version="1.4.2", capabilities=CAN)


def test_a_served_request_moves_exactly_these():
    """Every figure of the story is in the metrics, once."""
    metrics = _new_metrics()
    before = samples_of(metrics.registry)
    story = tale()
    metrics.request_ended(story, figures_of(story))
    assert changes(before, samples_of(metrics.registry)) == {
        'requests_total{outcome="completed"}': 1,
        "request_seconds_count": 1,
        "request_seconds_sum": 2.5,
        "queue_seconds_count": 1,
        "queue_seconds_sum": 0.25,
        "time_to_first_token_seconds_count": 1,
        "time_to_first_token_seconds_sum": 0.5,
        "time_per_output_token_seconds_count": 1,
        "time_per_output_token_seconds_sum": 0.25,
        'hop_seconds_count{hop="intake"}': 1,
        'hop_seconds_sum{hop="intake"}': 0.0625,
        'hop_seconds_count{hop="resolve"}': 1,
        'hop_seconds_sum{hop="resolve"}': 0.0625,
        'hop_seconds_count{hop="execute"}': 1,
        'hop_seconds_sum{hop="execute"}': 0.375,
        'hop_seconds_count{hop="stream"}': 1,
        'hop_seconds_sum{hop="stream"}': 2.0,
        'tokens_total{direction="input"}': 12,
        'tokens_total{direction="input_cached"}': 4,
    }


@pytest.mark.parametrize("cause", list(FailureCause))
def test_a_failed_request_counts_by_its_cause(cause: FailureCause):
    """Once, and so the causes add up to the failed requests."""
    metrics = _new_metrics()
    before = samples_of(metrics.registry)
    story = tale(Outcome.FAILED, Phase.PREFILL, failure_cause=cause)
    metrics.request_ended(story, figures_of(story))
    moved = changes(before, samples_of(metrics.registry))
    assert {name: count for name, count in moved.items() if name.startswith("failed_total")} == {
        f'failed_total{{cause="{cause.value}"}}': 1
    }
    assert moved['requests_total{outcome="failed"}'] == 1


def test_a_refused_request_has_no_tokens_and_no_queue():
    """What the engine never saw was never put into it."""
    metrics = _new_metrics()
    before = samples_of(metrics.registry)
    story = tale_of_refusal(RejectReason.MAX_LIVE)
    metrics.request_ended(story, figures_of(story))
    assert changes(before, samples_of(metrics.registry)) == {
        'requests_total{outcome="refused"}': 1,
        'rejected_total{reason="max_live"}': 1,
        "request_seconds_count": 1,
        "request_seconds_sum": 2.5,
        'hop_seconds_count{hop="intake"}': 1,
        'hop_seconds_sum{hop="intake"}': 2.5,
    }


def test_a_step_moves_exactly_these():
    """Counts, duration, tokens, sequences that were preempted, and the blocks in use after it."""
    metrics = _new_metrics()
    before = samples_of(metrics.registry)
    preempted = (EngineId(4), EngineId(4))
    step = EngineStep([], 1.0, 1.5, running=3, used_blocks=11, cached_blocks=5, preempted=preempted)
    metrics.step_done(step, tokens=3)
    metrics.count_chunk()
    assert changes(before, samples_of(metrics.registry)) == {
        "engine_steps_total": 1,
        "engine_step_seconds_count": 1,
        "engine_step_seconds_sum": 0.5,
        'tokens_total{direction="output"}': 3,
        'kv_blocks{state="used"}': 11,
        'kv_blocks{state="cached"}': 5,
        "engine_preemptions_total": 2,
        "chunks_total": 1,
    }


def test_new_counts_alone_are_no_step():
    """The blocks are shown as they are now, and the last iteration as it was."""
    metrics = _new_metrics()
    metrics.step_done(EngineStep([], 1.0, 1.5, used_blocks=11), tokens=0)
    before = samples_of(metrics.registry)
    metrics.step_done(EngineStep([], 9.0, 9.0, used_blocks=2, is_iteration=False), tokens=0)
    assert changes(before, samples_of(metrics.registry)) == {'kv_blocks{state="used"}': -9}


def test_blocks_of_several_ranks_are_compared_with_all_of_them():
    """A step tells their sum, and the engine the pool of one."""

    class TwoRanks(_Graph):
        info = msgspec.structs.replace(_Graph.info, data_parallel_size=2)

    metrics = _new_metrics()
    metrics.watch(TwoRanks())
    metrics.step_done(EngineStep([], 1.0, 1.5, used_blocks=70), tokens=0)
    found = samples_of(metrics.registry)
    assert [found[f'kv_blocks{{state="{state}"}}'] for state in ("used", "cached", "free")] == [70, 0, 30]


def test_blocks_are_used_or_cached_or_free():
    """The three add up to the cache."""
    metrics = _new_metrics()
    metrics.watch(_Graph())
    metrics.step_done(EngineStep([], 1.0, 1.5, used_blocks=11, cached_blocks=5), tokens=0)
    found = samples_of(metrics.registry)
    assert [found[f'kv_blocks{{state="{state}"}}'] for state in ("used", "cached", "free")] == [11, 5, 34]


def test_a_logits_processor_has_its_own_price():
    """Tokens and seconds by the names known at the start; others, however many come, have no series."""
    metrics = _new_metrics()
    before = samples_of(metrics.registry)
    uses = (ProcessorUse("cool", 3, 0.25), ProcessorUse("unheard of", 9, 9.0))
    metrics.step_done(EngineStep([], 1.0, 1.0, processors=uses), tokens=0)
    assert changes(before, samples_of(metrics.registry)) == {
        "engine_steps_total": 1,
        "engine_step_seconds_count": 1,
        'logits_processor_tokens_total{processor="cool"}': 3,
        'logits_processor_seconds_total{processor="cool"}': 0.25,
    }


def test_the_hit_rate_is_of_prompts_that_were_computed():
    """None before the first; a request that never got a token says nothing about the cache."""
    metrics = _new_metrics()
    waited = tale(Outcome.CANCELLED, Phase.PREFILL, prompt_tokens=100, cached_tokens=0)
    metrics.request_ended(waited, figures_of(waited))
    assert metrics.cache_hit_rate is None
    for cached_tokens in (4, 8):
        story = tale(prompt_tokens=12, cached_tokens=cached_tokens)
        metrics.request_ended(story, figures_of(story))
    assert metrics.cache_hit_rate == 0.5


def test_everything_else_moves_its_own_series():
    """Early ends, aborts, drains, lag and lost spans."""
    metrics = _new_metrics()
    before = samples_of(metrics.registry)
    metrics.request_cancelled(CancelReason.STALL, Phase.DECODE)
    metrics.abort_told(tale_of_abort(AbortResult.TIMED_OUT))
    metrics.abort_told(tale_of_abort(AbortResult.CONFIRMED))
    metrics.drain_progress(5)
    metrics.drain_ended(1.5)
    metrics.bounds(Bound.KV_CACHE, 3)
    metrics.loop_lag(0.25)
    metrics.spans_lost("queue_full", 4)
    metrics.listener_failed("log")
    metrics.kv_events("failed", 3)
    assert changes(before, samples_of(metrics.registry)) == {
        'cancellations_total{phase="decode",reason="stall"}': 1,
        'aborts_total{result="timed_out"}': 1,
        'aborts_total{result="confirmed"}': 1,
        "abort_seconds_count": 1,
        "abort_seconds_sum": 0.75,
        "drain_remaining_requests": 5,
        "drain_seconds_count": 1,
        "drain_seconds_sum": 1.5,
        "loop_lag_seconds_count": 1,
        "loop_lag_seconds_sum": 0.25,
        "loop_lag_last_seconds": 0.25,
        'bound_reached_total{bound="kv_cache"}': 3,
        'spans_lost_total{reason="queue_full"}': 4,
        'telemetry_errors_total{listener="log"}': 1,
        'kv_events_total{result="failed"}': 3,
    }


def states_on(metrics: Metrics) -> list[str]:
    """The states that are shown as the worker's own."""
    samples = samples_of(metrics.registry).items()
    return [name for name, value in samples if name.startswith("worker_state") and value]


def test_exactly_one_state_is_on():
    """From the first scrape on, whatever the worker goes through."""
    metrics = _new_metrics()
    others = [state for state in WorkerState if state is not WorkerState.FAILED]
    for state in [WorkerState.STARTING, *others, *reversed(others), WorkerState.FAILED]:
        metrics.state_changed(state)
        assert states_on(metrics) == [f'worker_state{{state="{state.value}"}}']


def test_who_has_failed_stays_failed():
    """The engine is stopped after it as always, in the moments in which somebody may still look."""
    metrics = _new_metrics()
    metrics.state_changed(WorkerState.FAILED)
    metrics.state_changed(WorkerState.STOPPING)
    assert states_on(metrics) == ['worker_state{state="failed"}']


def test_no_series_is_born_later():
    """Whatever happens, and whatever words come in, the set of series is the one of the start."""
    metrics = _new_metrics()
    before = samples_of(metrics.registry).keys()
    for story in tale_of_each():
        metrics.request_ended(story, figures_of(story))
    for rejected in RejectReason:
        refused = tale_of_refusal(rejected)
        metrics.request_ended(refused, figures_of(refused))
    for reason in CancelReason:
        for phase in Phase:
            metrics.request_cancelled(reason, phase)
    for result in AbortResult:
        metrics.abort_told(tale_of_abort(result))
    for loss in SPAN_LOSSES:
        metrics.spans_lost(loss, 1)
    after = samples_of(metrics.registry)
    assert after.keys() == before
    assert after['rejected_total{reason="other"}'] == 1


@given(
    seconds=st.floats(-10, 10) | st.just(float("nan")),
    tokens=st.integers(-5, 5),
    cached_tokens=st.integers(-100, 100),
)
def test_nothing_an_engine_says_makes_a_counter_fall(seconds: float, tokens: int, cached_tokens: int):
    """Clocks that run backwards, negative counts, more tokens from the cache than there are."""
    metrics = _new_metrics("torch")
    metrics.watch(_Graph())
    metrics.request_ended(tale(), figures_of(tale()))
    metrics.step_done(EngineStep([], 0.0, 1.0, processors=(ProcessorUse("cool", 3, 0.5),)), tokens=3)
    before = samples_of(metrics.registry)
    story = tale(cached_tokens=cached_tokens, prompt_tokens=12)
    metrics.request_ended(story, figures_of(story))
    use = ProcessorUse("cool", tokens, seconds)
    metrics.step_done(EngineStep([], 0.0, seconds, processors=(use,)), tokens=tokens)
    metrics.kv_events("published", tokens)
    after = samples_of(metrics.registry)
    rising = ("_total", "_count", "_sum", "_bucket")
    assert [
        name for name in after if name.partition("{")[0].endswith(rising) and not after[name] >= before[name]
    ] == []


def test_build_info_names_what_runs():
    """Version, engine and framework, as labels of a constant."""
    labels = 'engine="trtllm",framework_version="1.4.2",version="9.9.9"'
    assert samples_of(_new_metrics().registry)[f"build_info{{{labels}}}"] == 1


class _Books:
    live_count = 6


class _Engine:
    running_requests = 4
    running_sequences = 5
    waiting_requests = 2


class _Graph:
    """A graph as a scrape sees it."""

    ledger = _Books()
    executor = _Engine()
    info = EngineInfo(
        model="m", context_length=128, max_num_seqs=8, vocab_size=9, total_blocks=50, block_tokens=4
    )

    def mailboxes(self) -> Sequence[Mailbox]:
        from actors.mailbox import Mailbox

        return [Mailbox("intake", 2, 64), Mailbox("streamer", 1, 4)]


def test_live_gauges_are_read_when_asked():
    """No event is needed for them: the graph's own figures, at the time of the scrape."""
    metrics = _new_metrics()
    before = samples_of(metrics.registry)
    metrics.watch(_Graph())
    assert changes(before, samples_of(metrics.registry)) == {
        "requests_live": 6,
        "requests_waiting": 2,
        "requests_in_flight": 4,
        "engine_running_sequences": 5,
        'kv_blocks{state="free"}': 50,
        'mailbox_depth{actor="intake"}': 2,
        'mailbox_depth{actor="streamer"}': 1,
        'mailbox_capacity{actor="intake"}': 64,
        'mailbox_capacity{actor="streamer"}': 4,
    }


def _bridged(registry: CollectorRegistry) -> bytes:
    """What the framework appends to its own page."""
    from dynamo.common.utils.prometheus import gather_with_labels

    labels = {"dynamo_namespace": "dynamo", "worker_id": "1f", "model": "m", "model_name": "m"}
    return gather_with_labels(registry, labels, prefix_filters=["dynamo_actor_"]).encode()


@pytest.mark.skipif(not _PROMTOOL.exists(), reason="promtool is not there: make tools")
@pytest.mark.parametrize("as_text", [generate_latest, _bridged], ids=["own", "bridged"])
def test_promtool_has_nothing_to_say(as_text: Callable[[CollectorRegistry], bytes]):
    """Names, types, units and help texts are as Prometheus wants them, also behind the framework's bridge."""
    metrics = _new_metrics("torch")
    metrics.watch(_Graph())
    for story in tale_of_each():
        metrics.request_ended(story, figures_of(story))
    checked = subprocess.run(
        [_PROMTOOL, "check", "metrics"], input=as_text(metrics.registry), capture_output=True, check=False
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")


def test_the_bridge_takes_every_series():
    """None is left behind by the prefix, none is doubled, and the framework's labels come on top."""
    metrics = _new_metrics("torch")
    own = [line for line in generate_latest(metrics.registry).splitlines() if not line.startswith(b"#")]
    bridged = [line for line in _bridged(metrics.registry).splitlines() if not line.startswith(b"#")]
    assert len(bridged) == len(set(bridged)) == len(own)
    assert all(b'worker_id="1f"' in line for line in bridged)


def test_every_family_is_ours_and_explained():
    """The bridge selects by the prefix; a family without help text helps nobody."""
    for family in _new_metrics("torch").registry.collect():
        assert family.name.startswith("dynamo_actor_")
        assert family.documentation.endswith(".")
