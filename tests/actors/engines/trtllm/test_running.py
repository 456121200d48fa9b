"""Requests in a loaded engine: heard by one task each, aborted when they may be, and failed one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from actors.engines.trtllm.answers import collecting
from actors.engines.trtllm.constraints.guiding import Guide, Option
from actors.engines.trtllm.requests import unconfirmed
from protocols.errors import EngineDead
from protocols.spec import Guided, GuidedKind, Stage, StopRules
from protocols.spec import Output as OutputOptions
from protocols.steps import EngineId, FinishReason
from tests.actors.engines.trtllm.running_world import Engine, empty_engine
from tests.actors.engines.trtllm.scripted import Output, spec
from tests.actors.engines.trtllm.scripted_llm import ScriptedOutput

if TYPE_CHECKING:
    from actors.engines.trtllm.library import Library

pytestmark = pytest.mark.anyio


Make = Callable[..., Engine]


@pytest.fixture
def make(library: Library) -> Make:
    """``make()``: an engine with nothing in it."""
    return partial(empty_engine, library)


class TestHearing:
    async def test_what_several_say_at_once_is_one_step(self, make: Make) -> None:
        """The loop is woken once."""
        engine = make()
        outputs = [engine.submit(number) for number in range(3)]
        assert engine.running.running == 3
        for number, output in enumerate(outputs):
            output.show(Output([number]))
        step = await engine.steps.next_step(lambda: engine.running.running)
        assert sorted(delta.engine_id for delta in step.deltas) == [0, 1, 2]
        assert step.running == 3

    async def test_an_answer_from_its_first_to_its_last_word(self, make: Make) -> None:
        """Its slot is free with the last."""
        engine = make()
        output = engine.submit()
        output.show(Output([5, 6]))
        output.show(Output([5, 6, 7], "length"), finished=True)
        *_, last = await engine.heard(2)
        assert (last.is_last, last.finish_reason) == (True, FinishReason.LENGTH)
        assert engine.finished == [last]
        await asyncio.sleep(0)
        assert engine.running.running == 0

    async def test_a_step_begins_with_the_first_request_after_a_rest(
        self, make: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The engine did nothing before; a request that comes while it works makes no step shorter."""
        now = [100.0]
        monkeypatch.setattr(collecting, "time", SimpleNamespace(monotonic=lambda: now[0]))
        engine = make()
        now[0] = 700.0
        output = engine.submit(1)
        now[0] = 700.25
        engine.submit(2)
        now[0] = 700.5
        output.show(Output([5]))
        step = await engine.steps.next_step(lambda: engine.running.running)
        assert (step.started_s, step.ended_s) == (700.0, 700.5)

    async def test_a_stream_that_just_ends_is_a_failure(self, make: Make) -> None:
        """Never an answer without a last word."""
        engine = make()
        output = engine.submit()
        output.show(Output([5]))
        output.end()
        *_, last = await engine.heard(2)
        assert last.is_last
        assert last.error is not None

    async def test_a_task_that_the_library_cancels_leaves_nobody_waiting(self, make: Make) -> None:
        """Whatever comes out of its iterator, a request has a last word, and the engine is told."""
        engine = make()
        output = engine.submit()
        output.show(Output([5]))
        await engine.heard()
        output.raise_(asyncio.CancelledError())  # type: ignore[arg-type]
        (last,) = await engine.heard()
        assert last.is_last
        assert last.error is not None
        assert output.aborts == 1

    async def test_progress_counts_results(self, make: Make) -> None:
        """Another number with each."""
        engine = make()
        output = engine.submit()
        seen = {engine.running.progress}
        for count in range(1, 4):
            output.show(Output([5] * count))
            await engine.heard()
            seen.add(engine.running.progress)
        assert len(seen) == 4


class TestErrors:
    @pytest.mark.parametrize("number", range(4))
    async def test_an_error_of_one_request_is_its_own(
        self, make: Make, library: Library, number: int
    ) -> None:
        """The others go on, and the engine's health is looked at; no content is told."""
        from tests.actors.engines.trtllm.scripted_llm import errors_of

        engine, exc = make(), list(errors_of(library))[number]
        failing, other = engine.submit(1), engine.submit(2)
        failing.raise_(exc)
        (failed,) = await engine.heard()
        assert failed.is_last
        assert failed.error == f"the engine failed on this request ({type(exc).__name__})"
        other.show(Output([9], "stop"), finished=True)
        (last,) = await engine.heard()
        assert last.error is None
        assert engine.doubts
        assert not engine.deaths

    async def test_a_device_that_faulted_is_the_end(self, make: Make, library: Library) -> None:
        """Although it comes as one request's error."""
        engine = make()
        exc = library.RequestError("CUDA error: an illegal memory access was encountered")
        engine.submit().raise_(exc)
        engine.submit(2).show(Output([5]))
        await engine.heard()
        assert engine.deaths == [exc]

    async def test_a_device_that_faulted_under_somebody_else_is_the_end_too(
        self, make: Make, library: Library
    ) -> None:
        """The library raises an error that waits for anybody at whoever reads next."""
        engine = make()
        exc = library.RequestError("CUDA error: an illegal memory access was encountered")
        output = engine.submit()
        output.is_blamed = False
        output.raise_(exc)
        engine.submit(2).show(Output([5]))
        await engine.heard()
        assert engine.deaths == [exc]

    async def test_an_error_of_somebody_else_costs_no_token(self, make: Make, library: Library) -> None:
        """It is raised with a response that has come, which is told all the same."""
        engine = make()
        output = engine.submit()
        output.is_blamed = False
        output.outputs = [Output([5])]
        output.raise_(library.RequestError("another request's"))
        output.show(Output([5, 6], "stop"), finished=True)
        first, last = await engine.heard(2)
        assert (first.token_ids, last.token_ids, last.error) == ([5], [6], None)
        assert engine.doubts

    @pytest.mark.parametrize("is_told", [True, False])
    async def test_an_error_of_another_type_may_be_the_end(self, make: Make, is_told: bool) -> None:
        """Its words say so, or a look at the engine's health, which may take a moment to notice."""
        cause = RuntimeError("CUDA error: an illegal memory access was encountered")

        async def look() -> BaseException | None:
            return None if is_told else cause

        engine = make(look)
        engine.submit().raise_(cause if is_told else AttributeError("_queue"))
        engine.submit(2).show(Output([5]))
        await engine.heard()
        assert engine.deaths == [cause]

    async def test_words_that_a_caller_may_have_written_are_no_proof(
        self, make: Make, library: Library
    ) -> None:
        """An error may quote a constraint: a request of our own tells whether the engine still serves."""
        engine = make()
        exc = library.RequestError("at: root ::= 'CUDA error: an illegal memory access' x")
        guide = Guide(Option.REGEX, "[a-z]+")
        guided = Guided(kind=GuidedKind.REGEX, constraint="[a-z]+", grammar=guide)
        output = engine.submit(1, spec(guided=guided))
        output.raise_(exc)
        await anyio.wait_all_tasks_blocked()
        engine.llm.outputs[-1].show(Output([5], "length"), finished=True)
        (failed,) = await engine.heard()
        assert failed.error is not None
        assert not engine.deaths

    async def test_an_engine_that_fails_a_request_of_ours_too_is_dead(
        self, make: Make, library: Library
    ) -> None:
        """Then they were its own words."""
        engine = make()
        exc = library.RequestError("CUDA error: an illegal memory access was encountered")
        output = engine.submit(1, spec(cache_salt="tenant"))
        output.raise_(exc)
        await anyio.wait_all_tasks_blocked()
        engine.llm.outputs[-1].raise_(exc)
        engine.submit(2).show(Output([5]))
        await engine.heard()
        assert engine.deaths == [exc]

    async def test_an_error_while_the_library_knows_a_fault_is_the_end(
        self, make: Make, library: Library
    ) -> None:
        """Whatever its own words are."""
        engine, cause = make(), RuntimeError("the worker has gone")
        output, other = engine.submit(), engine.submit(2)
        engine.llm.break_for_good(cause)
        output.raise_(library.RequestError("a fault"))
        other.show(Output([5]))
        await engine.heard()
        assert engine.deaths == [cause]


class TestSubmitting:
    async def test_an_error_of_somebody_else_is_not_the_requests(self, make: Make, library: Library) -> None:
        """The library raises what lies in its queue to whoever comes next: it is asked once more."""
        engine = make()
        engine.llm.errors = [library.RequestError("another request's")]
        output = engine.submit()
        output.show(Output([5], "stop"), finished=True)
        (last,) = await engine.heard()
        assert last.error is None
        assert engine.doubts

    @pytest.mark.parametrize("kind", [ValueError, TypeError, AssertionError])
    async def test_an_error_of_its_own_is_raised(self, make: Make, kind: type[Exception]) -> None:
        """After the second time; nothing of it is left. The library checks some data by assertions."""
        engine = make()
        engine.llm.errors = [kind("top_k"), kind("top_k")]
        with pytest.raises(kind, match="top_k"):
            engine.submit()
        assert engine.running.running == 0
        assert not engine.deaths

    async def test_two_tries_share_no_object(self, make: Make) -> None:
        """The library may have written into the first ones."""
        engine, seen = make(), []
        ask = engine.llm.generate_async

        def fail_first(**asked: Any) -> ScriptedOutput:
            seen.append(asked)
            if len(seen) == 1:
                raise ValueError("once")
            return ask(**asked)

        engine.llm.generate_async = fail_first  # type: ignore[method-assign]
        engine.submit()
        assert seen[0]["sampling_params"] is not seen[1]["sampling_params"]
        assert seen[0]["inputs"] == seen[1]["inputs"] == [1, 2, 3]

    @pytest.mark.parametrize("stage", [Stage.WHOLE, Stage.DECODE])
    async def test_one_that_was_sent_all_the_same_is_ended(self, make: Make, stage: Stage) -> None:
        """The library may raise after it has sent a request; a hand-off is not fetched twice."""
        engine = make(role=stage)
        ended: list[int] = []
        executor = engine.llm._executor
        executor._last_client_id, executor.abort_request = 4, ended.append
        ask = engine.llm.generate_async

        def send_and_fail(**asked: Any) -> ScriptedOutput:
            executor._last_client_id += 1
            if executor._last_client_id == 5:
                raise ValueError("the late error of somebody")
            return ask(**asked)

        engine.llm.generate_async = send_and_fail  # type: ignore[method-assign]
        if stage is Stage.DECODE:
            with pytest.raises(ValueError, match="late"):
                engine.submit(1, spec(stage=stage, handoff=object()))
        else:
            engine.submit()
        assert ended == [5]
        assert executor._last_client_id == (5 if stage is Stage.DECODE else 6)

    async def test_one_that_was_sent_twice_for_nothing_is_ended_twice(self, make: Make) -> None:
        """Nobody would read either: they would take places of others until they are complete."""
        engine = make()
        ended: list[int] = []
        executor = engine.llm._executor
        executor._last_client_id, executor.abort_request = 4, ended.append

        def send_and_fail(**_: Any) -> None:
            executor._last_client_id += 1
            raise ValueError("top_k")

        engine.llm.generate_async = send_and_fail  # type: ignore[assignment]
        with pytest.raises(ValueError, match="top_k"):
            engine.submit()
        assert ended == [5, 6]

    async def test_a_dead_engine_takes_nothing(self, make: Make) -> None:
        """It is not asked twice."""
        engine, cause = make(), RuntimeError("the worker has gone")
        engine.llm.break_for_good(cause)
        engine.llm.errors = [RuntimeError("LLM is shutting down"), RuntimeError("LLM is shutting down")]
        with pytest.raises(EngineDead):
            engine.submit()
        assert engine.deaths == [cause]
        assert len(engine.llm.errors) == 1


class TestAborting:
    async def test_it_is_told_once_and_confirmed_by_the_last_word(self, make: Make) -> None:
        """However often it is wished."""
        engine = make()
        output = engine.submit()
        for _ in range(3):
            engine.running.abort(EngineId(1))
        assert output.aborts == 1
        output.show(Output([5], "cancelled"), finished=True)
        (last,) = await engine.heard()
        assert (last.finish_reason, last.is_last, last.token_ids) == (FinishReason.CANCELLED, True, [5])

    async def test_late_and_strange_ones_do_nothing(self, make: Make) -> None:
        """A request that has ended; an id that never was."""
        engine = make()
        output = engine.submit()
        output.show(Output([5], "stop"), finished=True)
        await engine.heard()
        await asyncio.sleep(0)
        engine.running.abort(EngineId(1))
        engine.running.abort(EngineId(9))
        assert output.aborts == 0

    async def test_a_decode_whose_cache_is_under_way_is_aborted_with_its_first_token(
        self, make: Make
    ) -> None:
        """Before, the other engine might keep its blocks for ever."""
        engine = make(role=Stage.DECODE)
        output = engine.submit(1, spec(stage=Stage.DECODE, handoff=object()))
        engine.running.abort(EngineId(1))
        assert output.aborts == 0
        output.show(Output([5]))
        await engine.heard()
        assert output.aborts == 1

    async def test_one_that_waits_in_the_engines_own_queue_is_dropped_without_a_word(
        self, make: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The engine says nothing of it any more: its place is free, and others go on."""
        monkeypatch.setattr(unconfirmed, "_MOST_S", 0.01)
        engine = make()
        other, queued = engine.submit(1), engine.submit(2)
        engine.running.abort(EngineId(2))
        (last,) = await engine.heard()
        assert (last.engine_id, last.finish_reason, last.is_last) == (
            EngineId(2),
            FinishReason.CANCELLED,
            True,
        )
        await asyncio.sleep(0)
        assert engine.running.running == 1
        queued.show(Output([5], "cancelled"), finished=True)
        other.show(Output([6], "stop"), finished=True)
        (last,) = await engine.heard()
        assert (last.engine_id, last.token_ids) == (EngineId(1), [6])
        assert (queued.aborts, engine.deaths, engine.doubts) == (1, [], [])

    @pytest.mark.parametrize("stage", [Stage.WHOLE, Stage.PREFILL])
    async def test_what_the_engine_says_in_time_is_its_last_word(self, make: Make, stage: Stage) -> None:
        """Its silence is not waited for any more, so nobody is told twice."""
        engine = make(role=stage)
        output = engine.submit(1, spec(stage=stage))
        engine.running.abort(EngineId(1))
        output.show(Output([], "cancelled"), finished=True)
        (last,) = await engine.heard()
        assert last.finish_reason is FinishReason.CANCELLED
        assert not engine.running._unconfirmed._silent

    async def test_what_is_raised_for_an_aborted_one_is_looked_at_to_its_end(self, make: Make) -> None:
        """The engine may have died of it: such a request counts as no dropped one meanwhile."""
        is_looking, is_seen = asyncio.Event(), asyncio.Event()

        async def look() -> None:
            is_looking.set()
            await is_seen.wait()

        engine = make(look=look)
        output = engine.submit()
        engine.running.abort(EngineId(1))
        output.raise_(ValueError("of the library"))
        await asyncio.wait_for(is_looking.wait(), 5)
        assert not engine.running._unconfirmed._silent
        is_seen.set()
        (last,) = await engine.heard()
        assert last.error is not None

    async def test_one_that_shall_tell_its_prompt_ends_with_its_first_token(self, make: Make) -> None:
        """Before, the engine's process would look for logits that there are not, and lose words of others."""
        engine = make()
        output = engine.submit(1, spec(output=OutputOptions(prompt_logprobs=1)))
        engine.running.abort(EngineId(1))
        assert output.aborts == 0
        output.show(Output([5], prompt_logprobs=[{}, {}, {}]))
        await engine.heard()
        assert output.aborts == 1

    async def test_an_executor_that_is_gone_is_a_doubt(self, make: Make) -> None:
        """The call reaches for what is no longer there."""
        engine = make()
        engine.submit().abort_error = AttributeError("abort_request")
        engine.running.abort(EngineId(1))
        assert engine.doubts

    async def test_what_the_driver_ended_the_engine_is_told(self, make: Make) -> None:
        """A stop id that it was not given: its answer would go on for nobody."""
        engine = make()
        stop = StopRules(max_tokens=20, min_tokens=1, stop_token_ids=frozenset({7}))
        output = engine.submit(1, spec(stop=stop))
        output.show(Output([5, 7, 8]))
        (delta,) = await engine.heard()
        assert (delta.token_ids, delta.finish_reason) == ([5, 7], None)
        assert output.aborts == 1
        output.show(Output([5, 7, 8, 8], "cancelled"), finished=True)
        (last,) = await engine.heard()
        assert (last.finish_reason, last.stop_reason) == (FinishReason.STOP, 7)


async def test_a_stop_leaves_no_task(make: Make) -> None:
    """Consumers that nobody will ever wake."""
    engine = make()
    for number in range(3):
        engine.submit(number)
    await engine.running.stop()
    assert engine.running.running == 0
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("trtllm-")]


async def test_a_stop_is_no_end_of_a_request(make: Make) -> None:
    """Who is live hears of it from the graph, and may go on elsewhere; the engine is told nothing."""
    engine = make()
    output = engine.submit()
    await engine.running.stop()
    engine.steps.close()
    with pytest.raises(EngineDead, match="was stopped"):
        await engine.heard()
    assert output.aborts == 0
