"""Promises of the whole graph, on a fake clock: requests from outside, an engine inside, books at the end."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from protocols.engine import EngineCapabilities
from protocols.errors import (
    EngineShutdown,
    FailureCause,
    GenerationFailed,
    InvalidRequest,
    Overloaded,
)
from protocols.steps import Delta, EngineId, FinishReason
from protocols.telemetry import AbortResult, Outcome, Phase
from tests.doubles.engines import (
    EndsWithoutReason,
    IgnoresAbort,
    MalformedTokens,
    NeverFirstToken,
    RaisesOnSubmit,
    RepeatsLast,
    ScriptedEngine,
    SpeaksAfterLast,
    SteppingEngine,
    UnknownId,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import OpenWorld

pytestmark = pytest.mark.anyio

WITHOUT_PAUSE = EngineCapabilities(can_pause=False, max_n=8)


class TestAnswers:
    async def test_a_request_gets_its_tokens_reason_and_usage(self, open_world: OpenWorld) -> None:
        """The way of a request, from the door to the last chunk."""
        async with open_world(SteppingEngine()) as world:
            answer = await world.ask(max_tokens=5).answer()
            assert answer.tokens == [1000, 1001, 1002, 1003, 1004]
            assert answer.finish_reasons == ["length"]
            assert answer.chunks[-1]["completion_usage"]["total_tokens"] == 9
            assert world.outcomes() == {Outcome.COMPLETED: 1}

    async def test_tokens_that_come_with_the_finish_are_delivered(self, open_world: OpenWorld) -> None:
        """A whole interval of them is no less than one (S10)."""
        async with open_world() as world:
            visit = await world.ask_settled(max_tokens=5)
            world.engine.say(visit.id, 5, 6, 7)
            world.engine.emit(Delta(visit.id, []))
            world.engine.finish(visit.id, FinishReason.LENGTH, [8, 9])
            answer = await visit.answer()
            assert answer.tokens == [5, 6, 7, 8, 9]
            assert answer.finish_reasons == ["length"]
            assert answer.chunks[-1]["completion_usage"]["completion_tokens"] == 5

    async def test_an_answer_that_is_over_with_its_first_delta(self, open_world: OpenWorld) -> None:
        """One chunk has everything (S10)."""
        async with open_world() as world:
            visit = await world.ask_settled(max_tokens=1)
            world.engine.finish(visit.id, FinishReason.LENGTH, [5])
            answer = await visit.answer()
            assert [chunk["token_ids"] for chunk in answer.chunks] == [[5]]
            assert answer.finish_reasons == ["length"]

    async def test_an_end_without_anything_is_a_typed_error(self, open_world: OpenWorld) -> None:
        """Never a stream that just stops (S10)."""
        async with open_world() as world:
            visit = await world.ask_settled()
            world.engine.emit(Delta(visit.id, [], is_last=True))
            answer = await visit.answer()
            assert answer.chunks == []
            assert isinstance(answer.error, GenerationFailed)

    async def test_two_choices_have_their_own_tokens_and_one_end(self, open_world: OpenWorld) -> None:
        """Usage sums both; the reason on the wire is the last one's (S11)."""
        async with open_world() as world:
            visit = await world.ask_settled(n=2, max_tokens=6, temperature=None)
            world.engine.emit(Delta(visit.id, [1], 1), Delta(visit.id, [11], 0))
            world.engine.emit(Delta(visit.id, [12, 13], 0), Delta(visit.id, [2], 1, FinishReason.STOP))
            world.engine.say(visit.id, 14, 15)
            world.engine.finish(visit.id, FinishReason.LENGTH, [16])
            answer = await visit.answer()
            assert (answer.tokens_of(0), answer.tokens_of(1)) == ([11, 12, 13, 14, 15, 16], [1, 2])
            assert answer.finish_reasons == ["length"]
            assert answer.chunks[-1]["completion_usage"]["completion_tokens"] == 8

    async def test_a_wrong_request_never_reaches_the_engine(self, open_world: OpenWorld) -> None:
        """Refused by name at once; the next one is served (S05)."""
        async with open_world(SteppingEngine()) as world:
            wrong: list[dict[str, Any]] = [
                {"prompt": [7] * 5000},
                {"top_p": 1.5},
                {"unknown_option": 1, "prompt": "x"},
            ]
            for options in wrong:
                answer = await world.ask(**options).answer()
                assert isinstance(answer.error, InvalidRequest)
            assert world.engine.calls == []
            assert (await world.ask(max_tokens=1).answer()).finish_reasons == ["length"]
            assert world.listener.rejections == {"invalid_request": 3}

    async def test_one_line_of_story_has_every_time_in_order(self, open_world: OpenWorld) -> None:
        """Arrived, admitted, resolved, submitted, first token, ended."""
        async with open_world(SteppingEngine()) as world:
            visit = world.ask(max_tokens=3)
            await visit.answer()
            story = world.listener.stories[visit.id]
            times = [
                story.arrived_s,
                story.admitted_s,
                story.resolved_s,
                story.submitted_s,
                story.first_token_s,
            ]
            assert None not in times
            assert [*times, story.ended_s] == sorted([*times, story.ended_s])  # type: ignore[type-var]
            assert (story.prompt_tokens, story.completion_tokens, story.finish_reason) == (4, 3, "length")


class TestAdmission:
    async def test_what_fits_is_served_and_the_rest_refused_at_once(self, open_world: OpenWorld) -> None:
        """2 running, 1 waiting, 5 at once: 3 served in order, 2 refused with a retry hint (S15)."""
        async with open_world(SteppingEngine(max_num_seqs=2), max_live=3) as world:
            visits = [world.ask(max_tokens=4) for _ in range(5)]
            await world.settle()
            refused = [visit for visit in visits if visit.ticket.is_ended]
            assert refused == visits[3:]
            for visit in refused:
                error = (await visit.answer()).error
                assert isinstance(error, Overloaded)
                assert error.retry_after_s > 0
            for visit in visits[:3]:
                assert (await visit.answer()).finish_reasons == ["length"]
            assert world.engine.ids_of("submit") == [visit.id for visit in visits[:3]]
            assert world.listener.rejections == {"max_live": 2}

    async def test_a_place_freed_by_a_cancel_is_used_again(self, open_world: OpenWorld) -> None:
        """At once, for the place; with the engine's confirmation, for the slot (S15)."""
        async with open_world(NeverFirstToken(max_num_seqs=1), max_live=2) as world:
            running, waiting = await world.ask_settled(), await world.ask_settled()
            assert (await world.ask_settled()).ticket.outcome is Outcome.REFUSED
            await running.leave()
            await world.settle()
            assert waiting.ticket.phase is Phase.PREFILL
            assert (await world.ask_settled()).ticket.phase is Phase.WAITING

    async def test_a_probe_is_served_by_a_full_worker(self, open_world: OpenWorld) -> None:
        """From its own place; it takes nobody else's."""
        async with open_world(SteppingEngine(), max_live=1) as world:
            await world.ask_settled(max_tokens=50)
            probe = world.ask(max_tokens=1, _HEALTH_CHECK=True)
            assert (await probe.answer()).finish_reasons == ["length"]
            assert world.listener.stories[probe.id].is_probe

    async def test_a_probe_does_not_wait_for_a_slot(self, open_world: OpenWorld) -> None:
        """All slots busy for long, and it is answered at once: the engine moves."""
        async with open_world(SteppingEngine(max_num_seqs=1)) as world:
            busy = world.ask(max_tokens=2000)
            await busy.reader.read()
            start_s = anyio.current_time()
            probe = world.ask(max_tokens=1, _HEALTH_CHECK=True)
            assert (await probe.answer()).finish_reasons == ["length"]
            assert anyio.current_time() - start_s < 0.1
            await busy.leave()

    async def test_unread_answers_are_bounded_like_unread_requests(self, open_world: OpenWorld) -> None:
        """Requests that have ended and whose readers sleep keep what was reserved for them."""
        async with open_world(SteppingEngine(), outbox_tokens=8, outbox_total_tokens=5) as world:
            unread = [world.ask(max_tokens=2) for _ in range(2)]
            await anyio.sleep(1)
            assert world.outcomes() == {Outcome.COMPLETED: 2}
            refused = await world.ask_settled(max_tokens=2)
            assert isinstance((await refused.answer()).error, Overloaded)
            assert (await unread[0].answer()).tokens == [1000, 1001]
            unread[1].close()
            for _ in range(2):
                assert (await world.ask_settled(max_tokens=2)).ticket.is_admitted

    async def test_more_in_one_turn_than_the_intakes_lane_holds(self, open_world: OpenWorld) -> None:
        """Refused by the facade's side, typed and counted, nothing queued without bound."""
        async with open_world(SteppingEngine(), max_live=1) as world:
            visits = [world.ask(max_tokens=1) for _ in range(200)]
            await visits[0].answer()
            await world.settle()
            assert world.outcomes() == {Outcome.COMPLETED: 1, Outcome.REFUSED: 199}
            assert set(world.listener.rejections) == {"max_live", "intake_full"}
            for visit in visits[1:]:
                assert isinstance((await visit.answer()).error, Overloaded)

    async def test_an_engine_that_cannot_pause_has_its_output_reserved(self, open_world: OpenWorld) -> None:
        """Given back by the end of the request."""
        engine = ScriptedEngine(capabilities=WITHOUT_PAUSE)
        async with open_world(engine, outbox_total_tokens=100) as world:
            first = await world.ask_settled(max_tokens=60)
            assert world.graph.ledger.reserved_tokens == 60
            refused = await world.ask_settled(max_tokens=41)
            assert isinstance((await refused.answer()).error, Overloaded)
            await first.leave()
            await world.settle()
            assert (await world.ask_settled(max_tokens=100)).ticket.phase is Phase.PREFILL


class TestHostileEngines:
    async def test_one_that_does_not_take_a_request(self, open_world: OpenWorld) -> None:
        """That request fails, the next one is served."""
        async with open_world(RaisesOnSubmit(only=[1])) as world:
            bad, good = world.ask(max_tokens=2), world.ask(max_tokens=2)
            assert isinstance((await bad.answer()).error, GenerationFailed)
            assert (await good.answer()).finish_reasons == ["length"]

    async def test_one_that_ends_without_a_reason(self, open_world: OpenWorld) -> None:
        """A typed error in place of silence."""
        async with open_world(EndsWithoutReason()) as world:
            assert isinstance((await world.ask().answer()).error, GenerationFailed)

    @pytest.mark.parametrize(
        "bad",
        [MalformedTokens.NEGATIVE, MalformedTokens.BEYOND_VOCABULARY, MalformedTokens.WRONG_TYPE, None, 1.5],
    )
    async def test_one_that_says_what_is_no_token(self, open_world: OpenWorld, bad: Any) -> None:
        """Its good tokens are delivered, it is aborted once, its neighbours live."""
        async with open_world(MalformedTokens(bad)) as world:
            visit = world.ask(max_tokens=8)
            answer = await visit.answer()
            assert answer.tokens == [1000]
            assert isinstance(answer.error, GenerationFailed)
            assert world.engine.ids_of("abort") == [visit.id]

    @pytest.mark.parametrize(
        ("engine", "cause"),
        [
            (RaisesOnSubmit, FailureCause.SUBMIT),
            (EndsWithoutReason, FailureCause.BROKEN_WORD),
            (partial(MalformedTokens, -1), FailureCause.BROKEN_WORD),
        ],
    )
    async def test_what_went_wrong_is_told(
        self, open_world: OpenWorld, engine: Callable[[], SteppingEngine], cause: FailureCause
    ) -> None:
        """By kind, beside the text: that is what can be counted."""
        async with open_world(engine()) as world:
            visit = world.ask(max_tokens=8)
            await visit.answer()
            assert world.listener.stories[visit.id].failure_cause is cause

    @pytest.mark.parametrize("engine", [RepeatsLast, SpeaksAfterLast, UnknownId])
    async def test_one_that_talks_too_much(self, open_world: OpenWorld, engine: type[SteppingEngine]) -> None:
        """Nobody is owed what comes after the end, or for a stranger."""
        async with open_world(engine()) as world:
            visits = [world.ask(max_tokens=3) for _ in range(3)]
            for visit in visits:
                assert (await visit.answer()).tokens == [1000, 1001, 1002]
            assert world.outcomes() == {Outcome.COMPLETED: 3}

    async def test_one_that_ignores_an_abort(self, open_world: OpenWorld) -> None:
        """The client is gone at once; the slot stays taken until the engine lets go of it."""
        async with open_world(IgnoresAbort(max_num_seqs=1, step_s=1.0)) as world:
            visit = world.ask(max_tokens=5)
            await visit.reader.read()
            await visit.leave()
            await visit.answer()
            waiting = await world.ask_settled(max_tokens=1)
            assert waiting.ticket.phase is Phase.WAITING
            assert (await waiting.answer()).finish_reasons == ["length"]
            assert world.listener.aborts == {AbortResult.ASKED: 1, AbortResult.CONFIRMED: 1}

    async def test_one_that_never_confirms_an_abort(self, open_world: OpenWorld) -> None:
        """Said once, after the time-out; the slot stays taken and nobody else suffers."""
        async with open_world(IgnoresAbort(max_num_seqs=2, step_s=1.0), hang_timeout_s=10.0) as world:
            visit = world.ask(max_tokens=200)
            await visit.reader.read()
            await visit.leave()
            await anyio.sleep(30)
            assert world.listener.aborts == {AbortResult.ASKED: 1, AbortResult.TIMED_OUT: 1}
            assert world.graph.executor.running_sequences == 1
            assert (await world.ask(max_tokens=1).answer()).finish_reasons == ["length"]

    async def test_one_that_fails_a_request(self, open_world: OpenWorld) -> None:
        """Only that one, with its tokens and the engine's text."""
        async with open_world() as world:
            bad, good = await world.ask_settled(), await world.ask_settled()
            world.engine.say(bad.id, 5)
            world.engine.fail(bad.id, "out of memory for this request")
            world.engine.finish(good.id, FinishReason.EOS, [6])
            answer = await bad.answer()
            assert (answer.tokens, str(answer.error)) == ([5], "out of memory for this request")
            assert (await good.answer()).finish_reasons == ["eos"]

    async def test_one_that_makes_many_steps_at_once(self, open_world: OpenWorld) -> None:
        """The step lane makes it wait; not one is lost or told twice."""
        async with open_world() as world:
            visit = await world.ask_settled(max_tokens=2000)
            for token in range(1000):
                world.engine.say(visit.id, token)
            world.engine.finish(visit.id, FinishReason.EOS)
            assert (await visit.answer()).tokens == list(range(1000))

    async def test_nobody_is_told_of_a_stranger(self, open_world: OpenWorld) -> None:
        """Deltas for ids that were never given out end nothing."""
        async with open_world() as world:
            visit = await world.ask_settled()
            world.engine.emit(Delta(EngineId(2**40), [5], is_last=True))
            await world.settle()
            assert not visit.ticket.is_ended


class TestLanes:
    async def test_every_lane_is_listed_with_its_bound(self, open_world: OpenWorld) -> None:
        """For the gauges: names, depths and capacities, none endless."""
        async with open_world() as world:
            boxes = world.graph.mailboxes()
            assert [box.actor for box in boxes] == [
                "intake", "resolver", "resolver_parked", "executor", "streamer", "monitor",
                "executor_control",
            ]  # fmt: skip
            assert all(0 < box.capacity < 10_000 for box in boxes)
            assert all(box.waiting == 0 for box in boxes)

    async def test_the_graph_says_what_its_engine_is(self, open_world: OpenWorld) -> None:
        """As the engine said it at its start."""
        async with open_world() as world:
            assert world.graph.info is world.engine.info


class TestEarlyErrorsAreTyped:
    async def test_a_request_after_the_end_of_the_graph(self, open_world: OpenWorld) -> None:
        """Refused in the word that moves it, never an exception of the channel."""
        async with open_world() as world:
            graph = world.graph
        visit = world.ask()
        assert isinstance((await visit.answer()).error, EngineShutdown)
        graph.cancel_context(visit.caller.context_id)
        graph.reader_gone(visit.ticket)
        assert world.outcomes() == {Outcome.REFUSED: 1}
