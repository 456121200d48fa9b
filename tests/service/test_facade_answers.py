"""What leaves ``generate()``: ids, indexes, one last word, exact usage; whoever else is being served."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocols.steps import Delta, EngineId, FinishReason
from tests.compat.expected import expected
from tests.doubles.callers import wire_request
from tests.doubles.contexts import FakeClient, RealClient
from tests.doubles.engines import EndsWithoutReason, RepeatsLast, ScriptedEngine, SpeaksAfterLast, UnknownId
from tests.service.worker import synthetic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from protocols.engine import Engine
    from tests.doubles.bridge import BridgeCall
    from tests.service.conftest import OpenWorker

FIRST = 1000


def check_answer(call: BridgeCall, prompt_tokens: int = 4) -> None:
    """What every answer that ended well has in common."""
    assert call.error is None
    assert call.is_exhausted
    assert all({"token_ids", "index"} <= chunk.keys() for chunk in call.chunks)
    *others, last = call.chunks
    assert all("finish_reason" not in chunk and "completion_usage" not in chunk for chunk in others)
    assert last["finish_reason"] in {"stop", "eos", "length", "cancelled"}
    assert last["completion_usage"] == usage(prompt_tokens, len(call.tokens))


def usage(prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0) -> Mapping[str, Any]:
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }


@pytest.mark.parametrize("step_ms", [0.0, 1.0])
def test_an_answer_has_all_its_tokens_and_one_last_word(open_worker: OpenWorker, step_ms: float) -> None:
    """Ids and index on every chunk, one terminal, last, and usage that counts what was delivered."""
    with open_worker(synthetic(step_ms)) as worker:
        worker.open()
        call = worker.generate(wire_request(max_tokens=50)).read_to_end()
        check_answer(call)
        assert call.tokens == list(range(FIRST, FIRST + 50))
        assert call.finish_reasons == ["length"]


@pytest.mark.parametrize("make_client", [FakeClient, RealClient])
def test_the_frameworks_own_context_is_understood(
    open_worker: OpenWorker, make_client: Callable[[], Any]
) -> None:
    """The real Context and the double of it give the same answer and the same story."""
    with open_worker() as worker:
        worker.open()
        client = make_client()
        call = worker.generate(wire_request(max_tokens=3), client).read_to_end()
        check_answer(call)
        assert worker.stories[0].context_id == client.context_id


def test_metadata_of_the_frameworks_context_reaches_the_rules(open_worker: OpenWorker) -> None:
    """A deadline in the client's headers is found in the framework's own mapping."""
    with open_worker(ScriptedEngine()) as worker:
        worker.open()
        client = RealClient(metadata={"deadline-ms": "60"})
        call = worker.generate(wire_request(), client).read_to_end()
        assert getattr(call.error, "code", None) == expected().deadline


def test_several_choices_keep_their_index_and_share_one_last_word(open_worker: OpenWorker) -> None:
    """The adapter ends the stream at the first finish reason, so only the very last chunk has one."""
    with open_worker() as worker:
        worker.open()
        call = worker.generate(wire_request(max_tokens=7, n=3)).read_to_end()
        check_answer(call)
        for index in range(3):
            assert [
                token for chunk in call.chunks if chunk["index"] == index for token in chunk["token_ids"]
            ] == list(range(FIRST, FIRST + 7))


@pytest.mark.parametrize("requests", [1, 40, 200])
def test_concurrent_requests_do_not_mix(open_worker: OpenWorker, requests: int) -> None:
    """Many at once, read in turns: each gets its own tokens, all of them, in order."""
    with open_worker(synthetic(1.0)) as worker:
        worker.open()
        calls = [worker.ask(wire_request(max_tokens=5 + i % 7)) for i in range(requests)]
        while any(not call.is_exhausted for call in calls):
            for call in calls:
                if not call.is_exhausted:
                    call.step()
        for i, call in enumerate(calls):
            check_answer(call)
            assert call.tokens == list(range(FIRST, FIRST + 5 + i % 7))


@pytest.mark.parametrize("first_ids", [[5, 6, 7], []])
@pytest.mark.parametrize("last_ids", [[8, 9], []])
def test_tokens_that_come_with_the_finish_are_delivered_once(
    open_worker: OpenWorker, first_ids: list[int], last_ids: list[int]
) -> None:
    """S10: whatever comes in the same word as the end, none is lost, none comes twice."""
    engine = ScriptedEngine()
    with open_worker(engine) as worker:
        worker.open()
        call = worker.ask(wire_request([1], max_tokens=5))
        worker.until(lambda: engine.live)
        if first_ids:
            worker.say(1, *first_ids)
            worker.until(lambda: call.is_step_done)
        worker.loop.call(lambda: engine.emit(Delta(EngineId(1), [])))
        worker.finish(1, FinishReason.LENGTH, last_ids)
        call.read_to_end()
        check_answer(call, prompt_tokens=1)
        assert call.tokens == [*first_ids, *last_ids]


@pytest.mark.parametrize("reason", list(FinishReason))
def test_every_reason_reaches_the_wire_in_the_adapters_words(
    open_worker: OpenWorker, reason: FinishReason
) -> None:
    """Only reasons that the adapter accepts; a cancel that nobody asked for is the engine's failure."""
    engine = ScriptedEngine()
    with open_worker(engine) as worker:
        worker.open()
        call = worker.ask(wire_request())
        worker.until(lambda: engine.live)
        worker.finish(1, reason, [7])
        call.read_to_end()
        if reason is FinishReason.CANCELLED:
            assert type(call.error).__name__ == "Unknown"
            assert call.tokens == [7]
        else:
            check_answer(call)
            assert call.finish_reasons == [reason.value]


@pytest.mark.parametrize("make_engine", [RepeatsLast, SpeaksAfterLast, UnknownId])
def test_nothing_comes_after_the_last_word(
    open_worker: OpenWorker, make_engine: Callable[[], Engine]
) -> None:
    """Whatever an engine adds after a request's end stays inside."""
    with open_worker(make_engine()) as worker:
        worker.open()
        call = worker.generate(wire_request(max_tokens=3)).read_to_end()
        check_answer(call)
        assert call.tokens == [FIRST, FIRST + 1, FIRST + 2]
        assert call.step() is None
        assert call.is_exhausted


def test_an_engine_that_ends_without_a_reason_still_gives_a_last_word(open_worker: OpenWorker) -> None:
    """A stream never just stops: it ends with a typed error."""
    with open_worker(EndsWithoutReason()) as worker:
        worker.open()
        call = worker.generate(wire_request()).read_to_end()
        assert call.terminals == 1
        assert type(call.error).__name__ == "Unknown"


def test_a_reader_that_is_behind_gets_what_waits_in_one_chunk(open_worker: OpenWorker) -> None:
    """Chunks are merged up to the bound, never across choices, and the order stays."""
    engine = ScriptedEngine()
    with open_worker(engine, chunk_tokens=4) as worker:
        worker.open()
        call = worker.ask(wire_request(n=2))
        worker.until(lambda: engine.live)
        worker.say(1, 1, index=0)
        call.finish_step()
        for token in range(2, 8):
            worker.say(1, token, index=0)
        worker.say(1, 8, index=1)
        worker.until(lambda: worker.recorder.tokens == 8)
        ends = [Delta(EngineId(1), [], index, FinishReason.STOP, is_last=index == 1) for index in (0, 1)]
        worker.loop.call(lambda: engine.emit(*ends))
        worker.until(lambda: worker.outcomes == {"completed": 1})
        call.read_to_end()
        assert [(chunk["index"], chunk["token_ids"]) for chunk in call.chunks] == [
            (0, [1]), (0, [2, 3, 4, 5]), (0, [6, 7]), (1, [8]),
        ]  # fmt: skip
        check_answer(call)


def test_chunks_are_counted(open_worker: OpenWorker) -> None:
    """The listener's figure is what went out."""
    with open_worker(synthetic(1.0)) as worker:
        worker.open()
        calls = [worker.generate(wire_request(max_tokens=4)).read_to_end() for _ in range(3)]
        assert worker.recorder.chunks == sum(len(call.chunks) for call in calls)


def test_the_health_probe_is_answered_by_an_idle_and_by_a_full_worker(open_worker: OpenWorker) -> None:
    """The framework's own payload, normalised as it does: real work, or no work where users have some."""
    with open_worker(synthetic(20.0), max_live=1) as worker:
        worker.open()
        payload = worker.loop.run(worker.facade.health_check_payload())
        assert payload is not None
        token_ids = payload.pop("token_ids")
        for is_full in (False, True):
            busy = [worker.ask(wire_request(max_tokens=40))] if is_full else []
            worker.until(lambda: worker.graph.ledger.admitted == len(busy))  # noqa: B023
            probe = worker.generate(wire_request(token_ids, **payload)).read_to_end()
            check_answer(probe, prompt_tokens=1)
            assert probe.finish_reasons == ["length"]
            assert len(probe.tokens) == (not is_full)
            for call in busy:
                call.read_to_end()


def test_a_worker_that_is_not_open_has_no_health_payload(open_worker: OpenWorker) -> None:
    """Before the start there is no first token id to ask with."""
    with open_worker() as worker:
        assert worker.loop.run(worker.facade.health_check_payload()) is None
        assert worker.loop.run(worker.facade.is_quiescent()) is None
