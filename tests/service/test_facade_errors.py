"""The border outwards: each of our errors has one framework exception, and nothing else ever leaves."""

from __future__ import annotations

import asyncio
import json
import math
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from dynamo.llm.exceptions import EngineShutdown as FrameworkEngineShutdown
from dynamo.llm.exceptions import HttpError, InvalidArgument, Unknown
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols import errors
from protocols.errors import ServiceError
from service.telemetry.repeats import RepeatLimiter
from service.translation import to_framework
from tests.compat.expected import expected
from tests.doubles.bridge import LoopThread
from tests.doubles.callers import wire_request
from tests.doubles.contexts import FakeClient
from tests.doubles.engines import DiesAtStep, RaisesOnSubmit, ScriptedEngine
from tests.service.worker import FacadeWorker, synthetic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from protocols.engine import Engine
    from tests.service.conftest import OpenWorker

ALLOWED = (InvalidArgument, HttpError, FrameworkEngineShutdown, Unknown)

MAPPING: dict[type[ServiceError], tuple[ServiceError, type[Exception], int | None]] = {
    errors.InvalidRequest: (errors.InvalidRequest("f", 1, "2"), InvalidArgument, None),
    errors.Overloaded: (errors.Overloaded("max_live", "full"), HttpError, 429),
    errors.DeadlineExceeded: (errors.DeadlineExceeded(1.0), HttpError, expected().deadline),
    errors.ReaderStalled: (errors.ReaderStalled(1.0), Unknown, None),
    errors.GenerationFailed: (errors.GenerationFailed("text"), Unknown, None),
    errors.MaintenanceFailed: (errors.MaintenanceFailed("text"), Unknown, None),
    errors.EngineShutdown: (errors.EngineShutdown("bye"), FrameworkEngineShutdown, None),
    errors.EngineDead: (errors.EngineDead("dead"), FrameworkEngineShutdown, None),
    errors.InternalError: (errors.InternalError("a secret"), Unknown, None),
    errors.StartStopped: (errors.StartStopped("stopped"), Unknown, None),
    errors.EngineStartError: (errors.EngineStartError("problem"), Unknown, None),
}
# Never raised themselves.
ROOTS = {"RequestError", "EngineError"}


def every_error(root: type[ServiceError] = ServiceError) -> Iterator[type[ServiceError]]:
    for kind in root.__subclasses__():
        yield kind
        yield from every_error(kind)


def test_the_table_names_every_error_there_is() -> None:
    """A new error of a request must be given its exception here before it can leave."""
    graphs = {kind.__name__ for kind in every_error() if kind.__module__ == "protocols.errors"}
    assert graphs - ROOTS == {kind.__name__ for kind in MAPPING}


@pytest.mark.parametrize("kind", list(MAPPING), ids=lambda kind: kind.__name__)
def test_each_error_has_its_exception(kind: type[ServiceError]) -> None:
    """Exactly this class, with the text of the error, and the code where HTTP has one."""
    error, expected, code = MAPPING[kind]
    translated = to_framework(error)
    assert type(translated) is expected
    assert getattr(translated, "code", None) == code
    if kind not in {errors.InternalError, errors.StartStopped, errors.EngineStartError}:
        assert str(error) in str(translated)


def test_an_internal_error_keeps_its_text_inside() -> None:
    """A bug's text may name what is none of the client's business."""
    assert "secret" not in str(to_framework(errors.InternalError("a secret")))


def test_an_overloaded_worker_says_when_to_come_back(open_worker: OpenWorker) -> None:
    """429 with a hint."""
    with open_worker(ScriptedEngine(), max_live=1) as worker:
        worker.open()
        worker.ask(wire_request())
        worker.until(lambda: worker.graph.ledger.admitted == 1)
        refused = worker.generate(wire_request()).read_to_end()
        assert isinstance(refused.error, HttpError)
        assert refused.error.code == 429
        assert "retry after 1 s" in refused.error.message


def test_a_deadline_ends_with_its_own_code(open_worker: OpenWorker) -> None:
    """504, or what a later frontend takes it for, after the tokens that came in time."""
    engine = ScriptedEngine()
    with open_worker(engine, deadline_s=0.15) as worker:
        worker.open()
        call = worker.ask(wire_request())
        worker.until(lambda: engine.live)
        worker.say(1, 5)
        call.read_to_end()
        assert isinstance(call.error, HttpError)
        assert call.error.code == expected().deadline
        assert call.tokens == [5]


def test_a_stalled_reader_ends_with_unknown(open_worker: OpenWorker) -> None:
    """Nobody read for the stall time-out: the request ends, the instance stays in routing."""
    engine = ScriptedEngine()
    with open_worker(engine, stall_timeout_s=0.1) as worker:
        worker.open()
        call = worker.ask(wire_request())
        worker.until(lambda: engine.live)
        worker.say(1, 5)
        call.finish_step()
        worker.say(1, 6)
        worker.until(lambda: worker.outcomes == {"stalled": 1})
        call.read_to_end()
        assert isinstance(call.error, Unknown)
        assert call.tokens == [5]


@pytest.mark.parametrize(
    ("make_engine", "expected"),
    [(RaisesOnSubmit, Unknown), (lambda: DiesAtStep(2), FrameworkEngineShutdown)],
    ids=["submit", "dies"],
)
def test_the_engines_faults(
    open_worker: OpenWorker, make_engine: Callable[[], Engine], expected: type[Exception]
) -> None:
    """One request's failure leaves the instance in routing; a dead engine takes it out."""
    with open_worker(make_engine()) as worker:
        worker.open()
        call = worker.generate(wire_request()).read_to_end()
        assert type(call.error) is expected


def test_a_failed_request_keeps_what_it_had(open_worker: OpenWorker) -> None:
    """Tokens that were delivered stay delivered; then Unknown with the driver's stable text."""
    engine = ScriptedEngine()
    with open_worker(engine) as worker:
        worker.open()
        call = worker.ask(wire_request())
        worker.until(lambda: engine.live)
        worker.say(1, 5)
        call.finish_step()
        worker.fail(1, "out of memory")
        call.read_to_end()
        assert isinstance(call.error, Unknown)
        assert "out of memory" in str(call.error)
        assert call.tokens == [5]


def test_a_bug_behind_the_facade_leaves_as_unknown(
    open_worker: OpenWorker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever breaks inside: the framework sees one of the agreed exceptions; the log sees what it was."""
    monkeypatch.setattr("service.telemetry.logs._LIMITER", RepeatLimiter())
    with open_worker(ScriptedEngine()) as worker:
        worker.open()

        async def breaks(_outbox: object) -> None:
            raise anyio.BrokenResourceError("a secret")

        monkeypatch.setattr("actors.outbox.Outbox.take", breaks)
        call = worker.generate(wire_request()).read_to_end()
        assert type(call.error) is Unknown
        assert "secret" not in str(call.error)
        assert any("BrokenResourceError" in record.getMessage() for record in caplog.records)
        monkeypatch.undo()


# Whatever JSON can say, and Python's odd corners beside it.
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-5, 50)
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([2**31, 2**32, 2**63, 2**64, -(2**63), 10**400, math.nan, math.inf, -0.0])
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
_TEMPLATE = wire_request()
OPTION_NAMES = sorted({key for group in _TEMPLATE.values() if isinstance(group, dict) for key in group})
TOP_LEVEL = sorted(
    {*_TEMPLATE, "routing", "extra_args", "prefill_result", "bootstrap_info", "multi_modal_data",
     "multi_modal_uuids", "mm_processor_kwargs", "prompt_embeds", "encoder_result", "_HEALTH_CHECK",
     "agent_context", "unknown"}
)  # fmt: skip
ROUTING = st.dictionaries(
    st.sampled_from(["lora_name", "dp_rank", "cache_salt", "priority", "expected_output_tokens", "new"]),
    SCALARS,
    max_size=3,
)
PROMPTS = st.lists(st.integers(0, 31_999), min_size=1, max_size=5) | st.lists(SCALARS, max_size=5) | ANYTHING
WIRES = st.one_of(
    # Nearly right: one to three options with any value.
    st.builds(
        lambda prompt, options: wire_request(prompt, **{"max_tokens": 3, **options}),
        PROMPTS,
        st.dictionaries(st.sampled_from(OPTION_NAMES), ANYTHING, max_size=3),
    ),
    # Right, with small values: most of these are served.
    st.builds(
        lambda options: wire_request(**{"max_tokens": 3, **options}),
        st.dictionaries(
            st.sampled_from(OPTION_NAMES), st.none() | st.booleans() | st.integers(0, 4), max_size=3
        ),
    ),
    st.builds(lambda routing: wire_request(max_tokens=2, routing=routing), ROUTING),
    # Any groups, any top-level keys.
    st.dictionaries(st.sampled_from(TOP_LEVEL), ANYTHING, max_size=6),
    st.dictionaries(st.text(max_size=8), ANYTHING, max_size=4),
)
HEADERS = st.dictionaries(st.just("deadline-ms"), st.text(max_size=6) | st.floats().map(str), max_size=1)


@pytest.fixture(scope="module")
def standing_worker() -> Iterator[FacadeWorker]:
    """One worker for all examples: a request that broke it would be noticed by all that follow."""
    with LoopThread(asyncio.new_event_loop) as loop:
        worker = FacadeWorker(loop, synthetic()).open()
        yield worker
        worker.end()
        worker.check_closed()


@pytest.mark.timeout(120)
@settings(max_examples=400)
@given(wire=WIRES, metadata=HEADERS)
def test_every_request_ends_in_a_last_word_of_a_known_kind(
    standing_worker: FacadeWorker, wire: dict[str, Any], metadata: dict[str, str]
) -> None:
    """Whatever is asked: one terminal chunk or one of four exceptions, and the worker lives on."""
    worker = standing_worker
    call = worker.generate(wire, FakeClient(metadata=metadata)).read_to_end()
    assert call.terminals == 1
    assert call.error is None or type(call.error) in ALLOWED
    for chunk in call.chunks:
        json.dumps(chunk, allow_nan=False)
    after = worker.generate(wire_request(max_tokens=1)).read_to_end()
    assert after.finish_reasons == ["length"]
    worker.calls.clear()
