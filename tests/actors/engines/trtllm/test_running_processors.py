"""Requests with logits processors: one that the engine did not steer by them is no answer."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from actors.engines.trtllm.processors.spool_writer import SpoolWriter
from protocols.spec import GenerationSpec, ProcessorEntry, Stage
from protocols.steps import EngineId, FinishReason, ProcessorUse
from tests.actors.engines.trtllm.operators_processors import Counting
from tests.actors.engines.trtllm.running_world import Engine, empty_engine
from tests.actors.engines.trtllm.scripted import Output, spec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors.engines.trtllm.library import Library
    from tests.actors.engines.trtllm.scripted_llm import ScriptedOutput

pytestmark = pytest.mark.anyio


@pytest.fixture
def engine(library: Library) -> Iterator[Engine]:
    """One that has the processor `Counting`."""
    engine = empty_engine(library, processors={"Counting": Counting})
    yield engine
    engine.steering.remove()


steered = partial(spec, processors=(ProcessorEntry(name="Counting"),))


def has_file(output: ScriptedOutput) -> bool:
    """Whether there is one in which its processors tell of themselves."""
    (sent,) = output.asked["sampling_params"].logits_processor
    return Path(sent.orders.spool).exists()


def call_processors(output: ScriptedOutput, failure: str | None = None) -> None:
    """What the engine's process writes down of a call."""
    (sent, *_) = output.asked["sampling_params"].logits_processor
    SpoolWriter(sent.orders.spool).write([(1, 0.25)], failure)


async def test_an_engine_that_calls_no_processors_fails_the_request_by_name(engine: Engine) -> None:
    """Its tokens are those that the processors were to forbid: the error says so, and it is no success."""
    output = engine.submit(1, steered())
    output.show(Output([5, 6, 7], "stop"), finished=True)
    (last,) = await engine.heard()
    assert (last.is_last, last.token_ids) == (True, [])
    assert last.error == "the engine did not call the request's logits processors"
    assert engine.finished == []


async def test_processors_that_were_called_are_told_with_the_answer(engine: Engine) -> None:
    """Once is enough: an engine that guesses ahead calls them less often than it says tokens."""
    output = engine.submit(1, steered())
    call_processors(output)
    output.show(Output([5, 6, 7], "stop"), finished=True)
    step = await engine.steps.next_step(lambda: 1)
    (last,) = step.deltas
    assert (last.token_ids, last.finish_reason, last.error) == ([5, 6, 7], FinishReason.EOS, None)
    assert list(step.processors) == [ProcessorUse("Counting", 1, 0.25)]


@pytest.mark.parametrize(
    ("asked", "tokens"),
    [
        (steered(), []),
        (steered(stage=Stage.DECODE, handoff=object()), [5]),
        (steered(stage=Stage.PREFILL), [5]),
    ],
    ids=["ended before its first token", "only the token that was handed over", "a prefill"],
)
async def test_where_nothing_was_chosen_there_was_nothing_to_call(
    engine: Engine, asked: GenerationSpec, tokens: list[int]
) -> None:
    """Such an end is none of the processors' business."""
    answer = Output(tokens, "length", disaggregated_params={"ctx_request_id": 7})
    engine.submit(1, asked).show(answer, finished=True)
    *_, last = await engine.heard()
    assert last.is_last
    assert last.error is None


async def test_a_decode_that_chose_for_itself_must_have_called_them(engine: Engine) -> None:
    """All but the first token are its own."""
    asked = steered(stage=Stage.DECODE, handoff=object())
    engine.submit(1, asked).show(Output([5, 6], "length"), finished=True)
    *_, last = await engine.heard()
    assert last.error == "the engine did not call the request's logits processors"


async def test_the_first_failure_is_the_one_that_is_told(engine: Engine) -> None:
    """A processor that failed was called: what it failed of is said, and the engine is told to stop."""
    output = engine.submit(1, steered())
    call_processors(output, "logits processor 'Counting' failed (ValueError)")
    output.show(Output([5]))
    output.show(Output([5, 6], "cancelled"), finished=True)
    (last,) = await engine.heard()
    assert last.error == "logits processor 'Counting' failed (ValueError)"
    assert output.aborts == 1


async def test_what_was_written_of_a_request_is_taken_away_with_it(engine: Engine) -> None:
    """A worker that serves for months would fill its memory with these files."""
    output = engine.submit(1, steered())
    assert has_file(output)
    output.show(Output([], "length"), finished=True)
    await engine.heard()
    await engine.running.stop()
    assert not has_file(output)


def fail(engine: Engine, *, calls: int) -> list[ScriptedOutput]:
    """So many calls of the library raise after they have sent; what was sent, in order."""
    sent: list[ScriptedOutput] = []
    ask = engine.llm.generate_async

    def send_and_fail(**asked: Any) -> ScriptedOutput:
        sent.append(ask(**asked))
        if len(sent) <= calls:
            raise RuntimeError("the late error of somebody")
        return sent[-1]

    engine.llm.generate_async = send_and_fail  # type: ignore[method-assign]
    return sent


async def test_a_call_that_failed_after_it_sent_steers_nobody_else(engine: Engine) -> None:
    """The second one has processors of its own: what those of the first still do is nobody's business."""
    sent = fail(engine, calls=1)
    engine.submit(1, steered())
    ghost, mine = sent
    assert not has_file(ghost)
    for _ in range(3):
        call_processors(ghost, "the engine follows more sequences than the request has choices")
    call_processors(mine)
    mine.show(Output([5, 6], "stop"), finished=True)
    step = await engine.steps.next_step(lambda: 1)
    (last,) = step.deltas
    assert (last.token_ids, last.error) == ([5, 6], None)
    assert list(step.processors) == [ProcessorUse("Counting", 1, 0.25)]


async def test_one_that_the_library_does_not_take_leaves_no_file(engine: Engine) -> None:
    """Whoever is refused comes again, and the folder lies in memory."""
    sent = fail(engine, calls=2)
    engine.running.submit(EngineId(1), steered())
    assert len(sent) == 2
    assert not any(has_file(output) for output in sent)
