"""Clients that leave: by flag, by abort, by dropping, throwing and closing; in every phase."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from protocols.steps import FinishReason
from tests.doubles.callers import wire_request
from tests.doubles.contexts import FakeClient, RealClient
from tests.doubles.engines import IgnoresAbort, NeverFirstToken, ScriptedEngine
from tests.service.worker import synthetic

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.doubles.bridge import BridgeCall
    from tests.doubles.contexts import Client
    from tests.service.conftest import OpenWorker
    from tests.service.worker import FacadeWorker

LONG = 4000


def check_cancelled(call: BridgeCall) -> None:
    """Ended for the client's reason, with what it got until then."""
    assert call.finish_reasons == ["cancelled"]
    assert call.chunks[-1]["finish_reason"] == "cancelled"
    assert call.chunks[-1]["token_ids"] == []
    assert call.chunks[-1]["completion_usage"]["completion_tokens"] == len(call.tokens)


def half_read(worker: FacadeWorker, client: Client | None = None, chunks: int = 3) -> BridgeCall:
    """A long request that has given some chunks and is between two steps."""
    call = worker.generate(wire_request(max_tokens=LONG, ignore_eos=True), client)
    for _ in range(chunks):
        assert call.step() is not None
    return call


@pytest.mark.parametrize("make_client", [FakeClient, RealClient])
def test_the_flag_alone_is_seen_at_the_next_step(
    open_worker: OpenWorker, make_client: Callable[[], Client]
) -> None:
    """No abort comes, the flag is up: the next chunk is the last and says cancelled."""
    with open_worker(synthetic(1.0)) as worker:
        worker.open()
        call = half_read(worker, client := make_client())
        client.leave()
        call.step()
        check_cancelled(call)
        call.read_to_end()
        assert call.is_exhausted
        worker.settle_engine()


@pytest.mark.parametrize("make_client", [FakeClient, RealClient])
def test_an_abort_wakes_a_step_that_waits(open_worker: OpenWorker, make_client: Callable[[], Client]) -> None:
    """The engine says nothing, the client leaves: the waiting step comes back with the last word."""
    engine = NeverFirstToken()
    with open_worker(engine) as worker:
        worker.open()
        client = make_client()
        call = worker.ask(wire_request(), client)
        worker.until(lambda: engine.live)
        worker.leave(client)
        call.finish_step()
        check_cancelled(call)
        worker.settle_engine()
        assert engine.ids_of("abort") == [1]


def test_a_client_that_left_before_the_first_step_costs_the_engine_nothing(open_worker: OpenWorker) -> None:
    """S02 a: cancelled when generate is called: the engine is never asked."""
    engine = ScriptedEngine()
    with open_worker(engine) as worker:
        worker.open()
        client = FakeClient()
        client.leave()
        call = worker.generate(wire_request(), client).read_to_end()
        check_cancelled(call)
        assert engine.calls == []
        assert worker.outcomes == {"cancelled": 1}


def test_the_chunk_after_a_cancel_is_the_last(open_worker: OpenWorker) -> None:
    """S01: whatever the engine still said after the client left is not delivered."""
    engine = ScriptedEngine(max_num_seqs=1)
    with open_worker(engine) as worker:
        worker.open()
        call = worker.ask(wire_request(max_tokens=LONG))
        worker.until(lambda: engine.live)
        for token in range(1, 6):
            worker.say(1, token)
            call.step()
        worker.say(1, 6)
        worker.until(lambda: worker.recorder.tokens == 6)
        worker.leave(call.client)
        call.step()
        check_cancelled(call)
        assert call.tokens == [1, 2, 3, 4, 5]
        assert engine.ids_of("abort") == [1]
        second = worker.ask(wire_request(max_tokens=3))
        worker.until(lambda: engine.live)
        worker.finish(2, FinishReason.LENGTH, [1, 2, 3])
        assert second.read_to_end().finish_reasons == ["length"]
        assert worker.outcomes == {"cancelled": 1, "completed": 1}
        story = worker.stories[0]
        assert (story.prompt_tokens, story.completion_tokens) == (4, 5)


def test_an_abort_after_the_end_is_nothing(open_worker: OpenWorker) -> None:
    """S02 b: the terminal was taken, then the client leaves: no abort, no error, no other outcome."""
    engine = ScriptedEngine()
    with open_worker(engine) as worker:
        worker.open()
        call = worker.ask(wire_request())
        worker.until(lambda: engine.live)
        worker.finish(1, FinishReason.STOP, [9])
        call.finish_step()
        worker.leave(call.client)
        call.read_to_end()
        worker.settle_engine()
        assert engine.ids_of("abort") == []
        assert worker.outcomes == {"completed": 1}
        assert not worker.recorder.aborts


def test_an_abort_twice_is_one_abort(open_worker: OpenWorker) -> None:
    """S02 c: the framework says so twice, and the generator notices too."""
    engine = ScriptedEngine(is_confirming=False)
    with open_worker(engine) as worker:
        worker.open()
        call = worker.ask(wire_request())
        worker.until(lambda: engine.live)
        worker.leave(call.client)
        worker.leave(call.client)
        check_cancelled(call.read_to_end())
        worker.leave(call.client)
        worker.until(lambda: engine.ids_of("abort"))
        assert engine.ids_of("abort") == [1]
        worker.finish(1, FinishReason.CANCELLED)
        worker.settle_engine()


def test_an_abort_of_a_stranger_is_nothing(open_worker: OpenWorker) -> None:
    """An id that nobody has: nobody is disturbed."""
    with open_worker(synthetic(1.0)) as worker:
        worker.open()
        call = half_read(worker)
        worker.leave(FakeClient("nobody"))
        assert call.step() is not None
        assert call.finish_reasons == []


def test_of_two_with_one_id_only_the_one_that_left_is_ended(open_worker: OpenWorker) -> None:
    """S02 d: a moved request meets its own past under the same id; the second ends, the first goes on."""
    engine = ScriptedEngine()
    with open_worker(engine) as worker:
        worker.open()
        first = worker.ask(wire_request(max_tokens=2), FakeClient("same"))
        second = worker.ask(wire_request(max_tokens=2), FakeClient("same"))
        worker.until(lambda: len(engine.live) == 2)
        worker.leave(second.client)
        check_cancelled(second.read_to_end())
        worker.finish(1, FinishReason.LENGTH, [1, 2])
        first.read_to_end()
        assert first.tokens == [1, 2]
        assert first.finish_reasons == ["length"]
        assert engine.ids_of("abort") == [2]


def test_stop_strings_and_a_token_make_an_abort_the_frontends_end(open_worker: OpenWorker) -> None:
    """A frontend that met a stop string aborts as a client does; the books know the difference."""
    with open_worker(synthetic(1.0)) as worker:
        worker.open()
        call = worker.generate(wire_request(max_tokens=LONG, stop=["."]))
        call.step()
        worker.leave(call.client)
        call.read_to_end()
        assert worker.outcomes == {"stopped_by_frontend": 1}


def test_a_dropped_generator_frees_its_place(open_worker: OpenWorker) -> None:
    """Collected in a foreign thread without a loop, without any abort: the engine is told all the same."""
    engine = ScriptedEngine()
    with open_worker(engine) as worker:
        worker.open()
        call = worker.ask(wire_request())
        worker.until(lambda: engine.live)
        worker.say(1, 5)
        call.finish_step()
        call.drop()
        worker.settle_engine()
        assert engine.ids_of("abort") == [1]
        assert worker.outcomes == {"cancelled": 1}
        worker.until(lambda: worker.facade.open_readers == 0)


def test_a_generator_dropped_in_the_middle_of_a_step_ends_with_it(open_worker: OpenWorker) -> None:
    """The framework lets go while a step waits: the abort ends the step, and the step ends the generator."""
    engine = NeverFirstToken()
    with open_worker(engine) as worker:
        worker.open()
        call = worker.ask(wire_request())
        worker.until(lambda: engine.live)
        call.drop()
        worker.leave(call.client)
        call.finish_step()
        check_cancelled(call)
        worker.settle_engine()
        worker.until(lambda: worker.facade.open_readers == 0)


@pytest.mark.parametrize("end", ["drop", "aclose", "throw_cancelled"])
@pytest.mark.parametrize("chunks", [1, 3])
def test_every_end_from_outside_ends_the_request(open_worker: OpenWorker, end: str, chunks: int) -> None:
    """Dropped, closed or thrown into from another task: cancelled in the books, free at the engine."""
    with open_worker(synthetic(1.0)) as worker:
        worker.open()
        call = half_read(worker, chunks=chunks)
        getattr(call, end)()
        worker.settle_engine()
        assert worker.outcomes == {"cancelled": 1}
        worker.until(lambda: worker.facade.open_readers == 0)


@pytest.mark.parametrize("end", ["drop", "aclose", "throw_cancelled", "step"])
def test_every_end_after_the_last_word_changes_nothing(open_worker: OpenWorker, end: str) -> None:
    """The framework may let go of a finished generator in any way: the outcome stays."""
    with open_worker() as worker:
        worker.open()
        call = worker.generate(wire_request(max_tokens=1))
        assert call.step() is not None
        getattr(call, end)()
        worker.settle_engine()
        assert worker.outcomes == {"completed": 1}
        worker.until(lambda: worker.facade.open_readers == 0)


def test_a_step_that_is_cancelled_ends_the_request(open_worker: OpenWorker) -> None:
    """A loop that ends cancels the task of the step: the request is over, and nobody waits for it."""
    engine = NeverFirstToken()
    with open_worker(engine) as worker:
        worker.open()
        call = worker.ask(wire_request())
        worker.until(lambda: engine.live)
        assert call._pending is not None
        call._pending.cancel()
        worker.settle_engine()
        assert worker.outcomes == {"cancelled": 1}


def test_a_waiting_request_that_is_cancelled_never_reaches_the_engine(open_worker: OpenWorker) -> None:
    """One slot, two requests: the one that waits leaves."""
    engine = ScriptedEngine(max_num_seqs=1)
    with open_worker(engine) as worker:
        worker.open()
        worker.ask(wire_request())
        waiting = worker.ask(wire_request())
        worker.until(lambda: worker.graph.executor.waiting_requests == 1)
        worker.leave(waiting.client)
        check_cancelled(waiting.read_to_end())
        assert engine.ids_of("submit") == [1]
        assert engine.ids_of("abort") == []


def test_an_engine_that_ignores_the_abort_holds_nobody_up(open_worker: OpenWorker) -> None:
    """The client's stream ends at once; the slot stays taken until the engine lets go of it."""
    engine = IgnoresAbort()
    with open_worker(engine) as worker:
        worker.open()
        call = worker.generate(wire_request(max_tokens=60))
        call.step()
        worker.leave(call.client)
        call.read_to_end()
        check_cancelled(call)
        assert not worker.loop.call(lambda: worker.graph.executor.is_idle)


@pytest.mark.parametrize("max_live", [1, 64])
@pytest.mark.parametrize("turns", [0, 1, 2])
def test_a_crowd_that_leaves_at_once_is_ended_one_by_one(
    open_worker: OpenWorker, max_live: int, turns: int
) -> None:
    """Everybody disconnects in the same turns of the loop: every request gets its outcome, none an error.

    turns: of the loop, between the aborts and the first steps; one of them lets the aborts fill the lane.
    """
    crowd = 150
    with open_worker(synthetic(1.0), max_live=max_live) as worker:
        worker.open()
        facade: Any = worker.facade
        clients = [FakeClient() for _ in range(crowd)]
        strangers = [FakeClient() for _ in range(crowd)]

        async def leave_together() -> list[list[str]]:
            generators = [facade.generate(request=wire_request(), context=c.context()) for c in clients]
            for client in clients:
                client.leave()
            aborts = [asyncio.ensure_future(facade.abort(c.context())) for c in strangers + clients]
            for _ in range(turns):
                await asyncio.sleep(0)
            answers = await asyncio.gather(*(_reasons(generator) for generator in generators))
            await asyncio.gather(*aborts)
            return answers

        answers = worker.loop.run(leave_together())
        # HttpError: refused, because more came at once than may live.
        assert all(answer in (["cancelled"], ["HttpError"]) for answer in answers)
        assert ["cancelled"] in answers
        assert len(worker.stories) == crowd


async def _reasons(generator: Any) -> list[str]:
    try:
        return [chunk["finish_reason"] async for chunk in generator if "finish_reason" in chunk]
    except Exception as exc:
        return [type(exc).__name__]
