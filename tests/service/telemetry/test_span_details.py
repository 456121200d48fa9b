"""What a span says beside its times: moments, options, errors, the life before."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from protocols.errors import FailureCause
from protocols.spec import Sampling
from protocols.steps import EngineTiming
from protocols.telemetry import AbortResult, CancelReason, Outcome, Phase
from protocols.trace_link import TraceLink
from tests.service.telemetry.collectors import attributes_of
from tests.service.telemetry.tales import (
    PARENT_ID,
    SAMPLED,
    TRACE_ID,
    UNSAMPLED,
    pace_of,
    tale,
    tale_of_abort,
)

if TYPE_CHECKING:
    from opentelemetry.proto.trace.v1.trace_pb2 import Span

    from protocols.telemetry import RequestStory
    from tests.service.telemetry.conftest import NewRecorder, OpenCollector

    Moments = list[tuple[str, float, dict[str, Any]]]

pytestmark = pytest.mark.usefixtures("lines")

_GREEDY = Sampling()


@pytest.fixture
def spans_of(open_collector: OpenCollector, new_recorder: NewRecorder) -> Any:
    """Tell a recorder one story and ask its collector."""

    def spans(story: RequestStory) -> dict[str, Span]:
        with open_collector() as collector:
            recorder = new_recorder(dict(os.environ))
            recorder.request_ended(story)
            recorder.shutdown()
            return collector.spans

    return spans


def _moments(spans: dict[str, Span], name: str) -> Moments:
    """Events of one span: name, seconds since the first span began, attributes."""
    began = spans["actor.intake"].start_time_unix_nano
    return [
        (event.name, (event.time_unix_nano - began) / 1e9, attributes_of(event.attributes))
        for event in spans[name].events
    ]


def test_a_served_request_tells_its_moments(spans_of: Any):
    """When the engine got it, and its first token, on the hop that ends with it."""
    spans = spans_of(tale(trace_headers=SAMPLED))
    assert _moments(spans, "actor.execute") == [
        ("submitted", 0.25, {"actor.waiting_ms": 125.0}),
        ("first_token", 0.5, {}),
    ]
    assert all(_moments(spans, f"actor.{other}") == [] for other in ("intake", "resolve", "stream"))


def test_preemptions_stand_where_they_happened(spans_of: Any):
    """Those whose time is known are events, before the first token and after it; the number has all."""
    story = tale(trace_headers=SAMPLED, preemptions=11, preempted_s=(100.375, 101.0, 101.5))
    spans = spans_of(story)
    assert [name for name, _, _ in _moments(spans, "actor.execute")] == [
        "submitted",
        "preempted",
        "first_token",
    ]
    assert _moments(spans, "actor.execute")[1] == ("preempted", 0.375, {})
    assert _moments(spans, "actor.stream") == [("preempted", 1.0, {}), ("preempted", 1.5, {})]
    assert attributes_of(spans["actor.execute"].attributes)["actor.preemptions"] == 11


@pytest.mark.parametrize("reason", sorted(CancelReason))
def test_an_early_end_is_told_at_its_true_time(spans_of: Any, reason: CancelReason):
    """On the hop it happened in, with its reason; the cancel lasts from the wish to the end."""
    spans = spans_of(tale(Outcome.CANCELLED, trace_headers=SAMPLED, cancel_reason=reason, cancelled_s=102.25))
    is_deadline = reason is CancelReason.DEADLINE
    expected = ("deadline", 2.25, {}) if is_deadline else ("cancelled", 2.25, {"actor.cancel.reason": reason})
    assert _moments(spans, "actor.stream") == [expected]
    cancel, began = spans["actor.cancel"], spans["actor.intake"].start_time_unix_nano
    assert (cancel.start_time_unix_nano - began, cancel.end_time_unix_nano - began) == (
        2_250_000_000,
        2_500_000_000,
    )
    assert attributes_of(cancel.attributes) == {
        "actor.engine_id": 7,
        "actor.context_id": "ctx-7",
        "actor.cancel.reason": reason.value,
        "actor.phase": "decode",
    }


@pytest.mark.parametrize("result", [AbortResult.CONFIRMED, AbortResult.TIMED_OUT])
def test_an_abort_lasts_until_the_engine_lets_go(
    open_collector: OpenCollector, new_recorder: NewRecorder, result: AbortResult
):
    """Younger than the outcome, so a span of its own beside the others; an error only where it is late."""
    with open_collector() as collector:
        recorder = new_recorder(dict(os.environ))
        for headers in (SAMPLED, UNSAMPLED, None):
            recorder.abort_told(tale_of_abort(AbortResult.ASKED, trace_headers=headers))
            recorder.abort_told(tale_of_abort(result, trace_headers=headers))
        recorder.shutdown()
        (span,) = collector.all_spans
    assert (span.name, span.parent_span_id.hex(), span.trace_id.hex()) == ("actor.abort", PARENT_ID, TRACE_ID)
    assert span.end_time_unix_nano - span.start_time_unix_nano == 750_000_000
    assert attributes_of(span.attributes) == {
        "actor.engine_id": 7,
        "actor.context_id": "ctx-7",
        "actor.abort.result": result.value,
    }
    is_late = result is AbortResult.TIMED_OUT
    assert span.status.code == (Status.STATUS_CODE_ERROR if is_late else Status.STATUS_CODE_UNSET)


def test_a_wish_before_the_first_token_stands_on_execute(spans_of: Any):
    """Also when tokens came before the end."""
    story = tale(
        Outcome.CANCELLED, trace_headers=SAMPLED, cancel_reason=CancelReason.CLIENT, cancelled_s=100.375
    )
    spans = spans_of(story)
    assert [name for name, _, _ in _moments(spans, "actor.execute")] == [
        "submitted",
        "cancelled",
        "first_token",
    ]
    assert _moments(spans, "actor.stream") == []


@pytest.mark.parametrize(("cancelled_s", "at_s"), [(99.0, 0.0), (None, 2.5), (200.0, 2.5)])
def test_a_wish_from_outside_the_request_is_moved_into_it(
    spans_of: Any, cancelled_s: float | None, at_s: float
):
    """A span never ends before it begins."""
    story = tale(
        Outcome.CANCELLED, trace_headers=SAMPLED, cancel_reason=CancelReason.CLIENT, cancelled_s=cancelled_s
    )
    spans = spans_of(story)
    where = "actor.intake" if at_s == 0 else "actor.stream"
    assert _moments(spans, where) == [("cancelled", at_s, {"actor.cancel.reason": "client"})]
    assert spans["actor.cancel"].end_time_unix_nano >= spans["actor.cancel"].start_time_unix_nano


def test_a_request_that_waited_in_vain_was_never_submitted(spans_of: Any):
    """Its only moment is its end."""
    story = tale(
        Outcome.DEADLINE,
        Phase.WAITING,
        trace_headers=SAMPLED,
        cancel_reason=CancelReason.DEADLINE,
        cancelled_s=102.0,
        error_kind="DeadlineExceeded",
    )
    assert _moments(spans_of(story), "actor.execute") == [("deadline", 2.0, {})]


@pytest.mark.parametrize(
    ("sampling", "told"),
    [
        (_GREEDY, {"temperature": 0.0}),
        (Sampling(temperature=0.5, seed=7), {"temperature": 0.5, "seed": 7}),
        (Sampling(temperature=0.5, seed=2**64 - 5), {"temperature": 0.5, "seed": -5}),
        (
            Sampling(
                temperature=0.5, top_k=20, top_p=0.75, frequency_penalty=-0.5, presence_penalty=0.25, seed=1
            ),
            {
                "temperature": 0.5,
                "seed": 1,
                "top_k": 20,
                "top_p": 0.75,
                "frequency_penalty": -0.5,
                "presence_penalty": 0.25,
            },
        ),
    ],
    ids=["greedy", "seeded", "seed-with-a-sign", "all"],
)
def test_the_options_that_matter_are_told(spans_of: Any, sampling: Sampling, told: dict[str, float]):
    """Under their GenAI names, on the hop in which the engine gets them; never stop strings."""
    spans = spans_of(tale(trace_headers=SAMPLED, sampling=sampling, max_tokens=64))
    found = attributes_of(spans["actor.execute"].attributes)
    asked = {name: value for name, value in found.items() if name.startswith("gen_ai.request.")}
    assert asked == {
        "gen_ai.request.max_tokens": 64,
        **{f"gen_ai.request.{name}": value for name, value in told.items()},
    }


def test_what_the_engine_measured_is_told(spans_of: Any):
    """On the hops that its times are parts of; what it did not measure is left out."""
    timing = EngineTiming(queued_s=0.0, prefill_s=0.25, decode_s=1.5)
    spans = spans_of(tale(trace_headers=SAMPLED, engine_timing=timing))
    found = {
        (name, key.removeprefix("actor.engine.")): value
        for name, span in spans.items()
        for key, value in attributes_of(span.attributes).items()
        if key.startswith("actor.engine.")
    }
    assert found == {
        ("actor.execute", "queued_ms"): 0.0,
        ("actor.execute", "prefill_ms"): 250.0,
        ("actor.stream", "decode_ms"): 1500.0,
    }


def test_the_pace_of_the_tokens_is_told(spans_of: Any):
    """Mean and median of the gaps."""
    pace = pace_of((100.5, 1), (100.75, 2), (101.0, 3), (102.5, 4))
    spans = spans_of(tale(trace_headers=SAMPLED, pace=pace, completion_tokens=4))
    found = attributes_of(spans["actor.stream"].attributes)
    assert (found["actor.itl_p50_ms"], found["actor.itl_mean_ms"]) == (250.0, 666.667)


@pytest.mark.parametrize(
    ("story", "words"),
    [
        (
            tale(Outcome.REFUSED, Phase.RESOLVING, error_kind="InvalidRequest", error_text="secret"),
            "InvalidRequest",
        ),
        (
            tale(Outcome.FAILED, error_kind="GenerationFailed", failure_cause=FailureCause.BROKEN_WORD),
            "GenerationFailed: broken_word",
        ),
        (tale(Outcome.STALLED), "stalled"),
    ],
    ids=["refused", "failed", "unnamed"],
)
def test_an_errors_words_are_kinds(spans_of: Any, story: RequestStory, words: str):
    """They can be counted; a text of a caller or an engine is not among them."""
    from msgspec import structs

    *_, last = (
        span
        for name, span in spans_of(structs.replace(story, trace_headers=SAMPLED)).items()
        if name != "actor.cancel"
    )
    assert (last.status.code, last.status.message) == (2, words)


def test_the_second_life_names_the_first(spans_of: Any):
    """A link from where it begins to the framework's span on the other worker; its ids are attributes too."""
    link = TraceLink("ab" * 16, "cd" * 8)
    spans = spans_of(tale(trace_headers=SAMPLED, predecessor=link))
    (found,) = spans["actor.intake"].links
    assert (found.trace_id.hex(), found.span_id.hex()) == link
    attributes = attributes_of(spans["actor.intake"].attributes)
    assert (attributes["migration_trace_id"], attributes["migration_span_id"]) == link
    assert all(not span.links for name, span in spans.items() if name != "actor.intake")


def test_the_first_life_says_that_it_goes_on(spans_of: Any):
    """It was interrupted, and a frontend can move it."""
    story = tale(
        Outcome.INTERRUPTED,
        trace_headers=SAMPLED,
        cancel_reason=CancelReason.DRAIN,
        error_kind="EngineShutdown",
        is_moved=True,
    )
    assert attributes_of(spans_of(story)["actor.stream"].attributes)["actor.is_moved"] is True
