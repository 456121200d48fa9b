"""Promises of the synthetic engine beyond those of all engines: its ids, its order, its clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from actors.engines.synthetic import FIRST_TOKEN_ID, StepClock, SyntheticConfig, SyntheticEngine
from protocols.errors import EngineStartError
from protocols.spec import GenerationSpec, Sampling, StopRules
from protocols.steps import EngineId, FinishReason

if TYPE_CHECKING:
    from protocols.steps import EngineStep

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def make_engine(**config: Any) -> SyntheticEngine:
    return SyntheticEngine(SyntheticConfig(**{"step_ms": 0, **config}))


def spec(n: int = 1, **stop: Any) -> GenerationSpec:
    return GenerationSpec(prompt=(1, 2), stop=StopRules(**{"max_tokens": 5, **stop}), n=n)


async def read(engine: SyntheticEngine, steps: int) -> list[EngineStep]:
    return [await engine.next_step() for _ in range(steps)]


def said(steps: list[EngineStep], engine_id: int, index: int = 0) -> list[int]:
    """Everything one choice of one request said."""
    deltas = [delta for step in steps for delta in step.deltas]
    return [
        token_id
        for delta in deltas
        if delta.engine_id == engine_id and delta.index == index
        for token_id in delta.token_ids
    ]


async def test_ids_rise_from_1000() -> None:
    """Every choice of every request says the same ids, whenever it comes, so that loads can be compared."""
    engine = make_engine()
    engine.submit(EngineId(1), spec())
    steps = await read(engine, 2)
    engine.submit(EngineId(2), spec(n=2))
    steps += await read(engine, 5)
    expected = [1000, 1001, 1002, 1003, 1004]
    assert said(steps, 1) == said(steps, 2, 0) == said(steps, 2, 1) == expected


async def test_ids_wrap_at_the_vocabulary() -> None:
    """After the last id of the vocabulary comes 1000 again, never a special token."""
    engine = make_engine(vocab_size=1003)
    engine.submit(EngineId(1), spec(max_tokens=7))
    assert said(await read(engine, 7), 1) == [1000, 1001, 1002, 1000, 1001, 1002, 1000]


async def test_one_step_for_all() -> None:
    """One step has one delta for every running sequence, and counts them."""
    engine = make_engine()
    for number in range(3):
        engine.submit(EngineId(number), spec(n=2))
    (step,) = await read(engine, 1)
    assert [(delta.engine_id, delta.index) for delta in step.deltas] == [
        (0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1),
    ]  # fmt: skip
    assert step.running == 6


async def test_the_first_token_comes_with_the_first_step() -> None:
    """Prompts cost nothing, and nothing is called cached."""
    engine = make_engine()
    engine.submit(EngineId(1), spec())
    (step,) = await read(engine, 1)
    assert [(delta.token_ids, delta.cached_tokens) for delta in step.deltas] == [([1000], 0)]


async def test_waiting_requests_keep_their_order() -> None:
    """Beyond max_num_seqs requests wait; a large one at the head is not overtaken by small ones."""
    engine = make_engine(max_num_seqs=2)
    engine.submit(EngineId(1), spec(max_tokens=1))
    engine.submit(EngineId(2), spec(max_tokens=3))
    engine.submit(EngineId(3), spec(max_tokens=1, n=2))
    engine.submit(EngineId(4), spec(max_tokens=1))
    steps = await read(engine, 5)
    assert [sorted({delta.engine_id for delta in step.deltas}) for step in steps] == [
        [1, 2],
        [2],
        [2],
        [3],
        [4],
    ]


async def test_an_aborted_head_lets_the_others_in() -> None:
    """Who waited only because of the order gets in when the head of the queue is aborted."""
    engine = make_engine(max_num_seqs=2)
    engine.submit(EngineId(1), spec())
    engine.submit(EngineId(2), spec(n=2))
    engine.submit(EngineId(3), spec())
    engine.abort(EngineId(2))
    (step,) = await read(engine, 1)
    assert [(delta.engine_id, delta.finish_reason) for delta in step.deltas] == [
        (2, FinishReason.CANCELLED), (1, None), (3, None),
    ]  # fmt: skip
    assert step.running == 2


async def test_stop_ids_are_passed_over() -> None:
    """Until min_tokens are out a stop id is left out, and afterwards the ids go on from there."""
    engine = make_engine()
    engine.submit(EngineId(1), spec(min_tokens=3, max_tokens=9, stop_token_ids=frozenset({1001, 1005})))
    steps = await read(engine, 5)
    assert said(steps, 1) == [1000, 1002, 1003, 1004, 1005]
    assert steps[-1].deltas[0].finish_reason is FinishReason.STOP
    assert steps[-1].deltas[0].stop_reason == 1005


async def test_min_tokens_out_of_reach() -> None:
    """A request for which no id is left fails alone; it does not search for ever."""
    engine = make_engine(vocab_size=1003)
    engine.submit(EngineId(1), spec(min_tokens=1, stop_token_ids=frozenset({1000, 1001, 1002})))
    engine.submit(EngineId(2), spec(max_tokens=1))
    (step,) = await read(engine, 1)
    failed, other = step.deltas
    assert failed.is_last
    assert failed.error == "min_tokens cannot be reached: every token id ends the request"
    assert other.finish_reason is FinishReason.LENGTH


async def test_capabilities() -> None:
    """All sampling options are accepted; a request can never want more choices than there are slots."""
    assert make_engine().capabilities.sampling == set(Sampling.__struct_fields__)
    assert make_engine().capabilities.max_n == 128
    assert make_engine(max_num_seqs=4).capabilities.max_n == 4


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({"vocab_size": FIRST_TOKEN_ID}, "vocab_size: 1000 is not accepted: 1001 or more"),
        ({"max_num_seqs": 0}, "max_num_seqs: 0 is not accepted: 1 or more"),
        ({"context_length": 1}, "context_length: 1 is not accepted: 2 or more"),
        ({"step_ms": -1.0}, "step_ms: -1.0 is not accepted: 0 to 10000 milliseconds"),
        ({"step_ms": float("nan")}, "step_ms: nan is not accepted"),
        ({"step_ms": 10_001.0}, "step_ms: 10001.0 is not accepted"),
    ],
)
async def test_a_wrong_value_stops_the_start(config: dict[str, Any], complaint: str) -> None:
    """The error names the field, the value and what is allowed."""
    with pytest.raises(EngineStartError, match=complaint):
        await make_engine(**config).start()


def test_clock_after_an_idle_time() -> None:
    """The first step takes its full time from the submit on."""
    clock = StepClock(0.5)
    clock.begin(100.0)
    assert clock.wait_s(100.0) == 0.5
    assert clock.wait_s(100.25) == 0.25
    assert clock.end(100.5) == 100.0


def test_clock_keeps_its_grid() -> None:
    """A step that ends a little late or early does not move the ones after it."""
    clock = StepClock(0.5)
    clock.begin(100.0)
    assert clock.end(100.625) == 100.0
    assert clock.wait_s(100.625) == 0.375
    assert clock.end(100.875) == 100.625
    assert clock.wait_s(100.875) == 0.625


@pytest.mark.parametrize("late_s", [0.5, 0.625, 60.0])
def test_clock_does_not_catch_up(late_s: float) -> None:
    """After a pause of a step or more, steps come at the usual distance: no burst."""
    clock = StepClock(0.5)
    clock.begin(100.0)
    clock.end(100.5 + late_s)
    assert clock.wait_s(100.5 + late_s) == 0.5


def test_clock_without_pace() -> None:
    """At a pace of 0 a step is due as soon as the one before it has ended."""
    clock = StepClock(0.0)
    clock.begin(100.0)
    assert clock.wait_s(100.0) == 0.0
    assert clock.end(101.0) == 100.0
    assert clock.wait_s(101.0) == 0.0
