"""Promises of the double's results: what a consumer sees is what the facts say, response by response."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.doubles.trtllm_llms import CONTEXT, FIRST_ID, ask, open_llm, params, read, write_folder
from tests.doubles.trtllm_site import double_on_path

if TYPE_CHECKING:
    from tensorrt_llm import LLM

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """The library knows no other."""
    return "asyncio"


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    """One for the module; it has no model and says 1000, 1001, ..."""
    folder = write_folder(tmp_path_factory.mktemp("model"))
    with (
        double_on_path(),
        open_llm(folder, max_beam_width=4, max_batch_size=8, return_perf_metrics=True) as opened,
    ):
        yield opened


async def test_ids_are_cumulative(llm: LLM) -> None:
    """Every response shows the whole answer so far, and the last one has the reason."""
    seen = await read(ask(llm, [5, 6, 7], max_tokens=3))
    assert seen.ids == [[[1000]], [[1000, 1001]], [[1000, 1001, 1002]]]
    assert seen.reasons == ["length"]
    assert seen.result.finished
    assert seen.result.error is None


async def test_it_is_always_the_same_object(llm: LLM) -> None:
    """Whoever keeps a response for later finds it changed."""
    result = ask(llm, [5])
    seen = [each async for each in result]
    assert all(each is result for each in seen)


async def test_without_streaming_there_is_one_response(llm: LLM) -> None:
    """It comes at the end, and the call has returned long before."""
    result = ask(llm, [5, 6, 7], streaming=False, max_tokens=4)
    assert not result.finished
    seen = await read(result)
    assert seen.ids == [[[1000, 1001, 1002, 1003]]]


async def test_every_response_is_about_one_sequence(llm: LLM) -> None:
    """With several choices; the differences of the others keep what they were."""
    result = ask(llm, [5], n=2, temperature=0.8, max_tokens=3)
    sizes = [[len(output.token_ids_diff) for output in each.outputs] async for each in result]
    seen = [len(output.token_ids or []) for output in result.outputs]
    assert seen == [3, 3]
    assert sizes == [[1, 0], [1, 1], [1, 1], [1, 1], [1, 1], [1, 1]]


async def test_a_stop_word_is_cut_and_its_likelihood_is_not(llm: LLM) -> None:
    """The id that ended it is the stop reason."""
    seen = await read(ask(llm, [5], stop_token_ids=[1002], logprobs=0))
    output = seen.result.outputs[0]
    assert (output.token_ids, output.finish_reason, output.stop_reason) == ([1000, 1001], "stop", 1002)
    assert len(output.logprobs or []) == 3


async def test_a_stop_word_stays_when_it_is_wanted(llm: LLM) -> None:
    """Then nothing is cut."""
    seen = await read(ask(llm, [5], stop_token_ids=[1002], include_stop_str_in_output=True))
    assert seen.tokens == [1000, 1001, 1002]


async def test_the_end_id_stays_and_gives_no_stop_reason(llm: LLM) -> None:
    """Also when it is among the stop ids: it is looked at first."""
    seen = await read(ask(llm, [5], end_id=1001, stop_token_ids=[1001]))
    output = seen.result.outputs[0]
    assert (output.token_ids, output.finish_reason, output.stop_reason) == ([1000, 1001], "stop", None)


async def test_only_the_end_id_is_held_back_before_min_tokens(llm: LLM) -> None:
    """Stop words end an answer all the same; with several choices each by itself."""
    held = await read(ask(llm, [5], end_id=1001, min_tokens=3, max_tokens=4))
    assert 1001 not in held.tokens[:3]
    seen = await read(ask(llm, [5], stop_token_ids=[1002], min_tokens=5, max_tokens=8, n=2, temperature=1.0))
    assert [output.token_ids for output in seen.result.outputs] == [[1000, 1001]] * 2
    assert [output.stop_reason for output in seen.result.outputs] == [1002, 1002]
    assert (await read(ask(llm, [5], max_tokens=1))).tokens == [FIRST_ID]


async def test_a_choice_that_a_stop_word_ended_ends_the_request_with_the_others(llm: LLM) -> None:
    """Whichever is the last: here one whose end comes by itself."""
    result = ask(llm, [5], stop_token_ids=[1002], min_tokens=4, max_tokens=30, n=3, temperature=1.0)
    seen = await read(result)
    assert (seen.reasons, seen.result.finished) == (["stop"] * 3, True)


async def test_a_stop_word_counts_as_the_last_token_too(llm: LLM) -> None:
    """And is cut."""
    word = await read(ask(llm, [5], stop_token_ids=[1002], max_tokens=3))
    assert (word.tokens, word.reasons) == ([1000, 1001], ["stop"])


async def test_the_length_can_be_looked_at_first(tmp_path: Path) -> None:
    """Where the script says so; then the word stays, and the end id goes before both."""
    with double_on_path(), open_llm(write_folder(tmp_path), {"has_length_first": True}) as opened:
        word = await read(ask(opened, [5], stop_token_ids=[1002], max_tokens=3))
        assert (word.tokens, word.reasons) == ([1000, 1001, 1002], ["length"])
        end = await read(ask(opened, [5], end_id=1002, max_tokens=3))
        assert (end.tokens, end.reasons) == ([1000, 1001, 1002], ["stop"])


async def test_ignore_eos_switches_stop_ids_off_too(llm: LLM) -> None:
    """The engine is told of neither."""
    seen = await read(ask(llm, [5], end_id=1001, stop_token_ids=[1002], ignore_eos=True))
    assert seen.tokens == [1000, 1001, 1002, 1003, 1004]


async def test_more_than_there_is_room_for_is_cut_down(llm: LLM) -> None:
    """Without an error: the answer ends where the model's context does."""
    seen = await read(ask(llm, [5] * (CONTEXT - 2), max_tokens=1000))
    assert (seen.tokens, seen.reasons) == ([1000, 1001], ["length"])


async def test_an_abort_is_a_last_response(llm: LLM) -> None:
    """And no error; the flag is on the object that was aborted, and not on the executor's own."""
    result = ask(llm, [5], max_tokens=100)
    async for each in result:
        if not each.aborted():
            each.abort()
    assert result.outputs[0].finish_reason == "cancelled"
    assert (result.finished, result.error, result.aborted()) == (True, None, True)


async def test_an_abort_ends_what_is_open_and_nothing_else(llm: LLM) -> None:
    """Every open sequence gets its own last response."""
    result = ask(llm, [5], n=2, temperature=1.0, max_tokens=100)
    await anext(aiter(result))
    result.abort()
    seen = await read(result)
    assert seen.reasons == ["cancelled", "cancelled"]


async def test_aborting_what_has_ended_does_nothing(llm: LLM) -> None:
    """Nor does aborting twice."""
    result = ask(llm, [5], max_tokens=1)
    await read(result)
    result.abort()
    result.abort()
    assert (await read(ask(llm, [5], max_tokens=1))).tokens == [FIRST_ID]


async def test_the_best_of_more_are_found_at_every_read(llm: LLM) -> None:
    """They are sorted by likelihood and numbered anew, so an index means nothing before the end."""
    seen = await read(ask(llm, [5], n=2, best_of=3, temperature=1.0, max_tokens=2, logprobs=0))
    outputs = seen.result.outputs
    assert [output.index for output in outputs] == [0, 1]
    assert outputs is not seen.result.outputs
    likelihoods = [output.cumulative_logprob or 0.0 for output in outputs]
    assert likelihoods == sorted(likelihoods, reverse=True)


async def test_the_best_of_more_are_the_first_where_nobody_asked_for_likelihoods(llm: LLM) -> None:
    """No sum is made of them, so that all are equally good."""
    seen = await read(ask(llm, [5], n=2, best_of=3, temperature=1.0, max_tokens=2))
    assert [output.cumulative_logprob for output in seen.result.outputs] == [None, None]


async def test_beam_search_replaces_all_ids(llm: LLM) -> None:
    """Every response has every beam."""
    result = ask(llm, [5], n=2, use_beam_search=True, max_tokens=3)
    first = await anext(aiter(result))
    ids = first.outputs[0].token_ids
    await read(result)
    assert result.outputs[0].token_ids is not ids
    assert [len(output.token_ids or []) for output in result.outputs] == [3, 3]


async def test_likelihoods_have_a_rank_each(llm: LLM) -> None:
    """One dictionary for each token, and plain numbers in the simple format."""
    seen = await read(ask(llm, [5], logprobs=0, max_tokens=2))
    entries: Any = seen.result.outputs[0].logprobs
    assert [list(entry) for entry in entries] == [[1000], [1001]]
    assert entries[0][1000].rank == 1
    simple = await read(ask(llm, [5], logprobs=0, logprobs_simple_format=True, max_tokens=2))
    assert simple.result.outputs[0].logprobs == [-1.0, -1.0]


async def test_a_finished_request_has_its_numbers(llm: LLM) -> None:
    """Under enum members, but for the finish reason; moments count from an origin of the engine's own."""
    from tensorrt_llm.metrics import MetricNames

    result = (await read(ask(llm, [5], max_tokens=2))).result
    assert result.metrics_dict["finished_reason"] == "length"
    assert result.metrics_dict[MetricNames.GENERATION_TOKENS] == 2
    performance = result.outputs[0].request_perf_metrics
    assert performance is not None
    moments = performance.timing_metrics
    assert moments.arrival_time <= moments.first_scheduled_time <= moments.first_token_time
    assert moments.first_token_time <= moments.last_token_time


async def test_a_result_has_one_consumer(llm: LLM) -> None:
    """A second one at the same time is refused."""
    result = ask(llm, [5], max_tokens=50)
    readers = [asyncio.create_task(read(result)) for _ in range(2)]
    errors = [(await reader).error for reader in readers]
    assert sum(isinstance(error, AssertionError) for error in errors) == 1


async def test_blocking_the_results_own_loop_is_refused(llm: LLM) -> None:
    """It would never end."""
    with pytest.raises(RuntimeError):
        ask(llm, [5]).result()


def test_a_result_made_without_a_loop_cannot_be_awaited(llm: LLM) -> None:
    """It can be read by blocking, and the time-out changes nothing."""
    result = ask(llm, [5], max_tokens=2)

    async def awaiting() -> None:
        await result

    with pytest.raises(AssertionError):
        asyncio.run(awaiting())
    assert result.result(timeout=0.0).outputs[0].token_ids == [1000, 1001]


async def test_cancelling_the_reader_does_not_end_the_request(llm: LLM) -> None:
    """Whoever reads on gets the rest."""
    result = ask(llm, [5], max_tokens=4)
    reader = asyncio.create_task(read(result))
    await asyncio.sleep(0)
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
    assert (await read(result)).tokens == [1000, 1001, 1002, 1003]


async def test_other_threads_fill_it_and_may_abort_it(llm: LLM) -> None:
    """The loop is only ever told."""
    result = ask(llm, [5], max_tokens=100)
    await anext(aiter(result))
    threading.Thread(target=result.abort).start()
    assert (await read(result)).reasons == ["cancelled"]


async def test_requests_beyond_the_batch_wait(llm: LLM) -> None:
    """All of them are served."""
    results = [ask(llm, [each], max_tokens=3) for each in range(20)]
    seen = await asyncio.gather(*map(read, results))
    assert all(each.reasons == ["length"] for each in seen)


def test_nobody_else_makes_a_result(llm: LLM) -> None:
    """Its constructor says so."""
    from tensorrt_llm.llmapi import RequestOutput

    with pytest.raises(RuntimeError):
        RequestOutput()


def test_generate_blocks_and_keeps_the_order(llm: LLM) -> None:
    """One prompt gives one result, several give a list."""
    one: Any = llm.generate([5, 6], params(max_tokens=1))
    several: Any = llm.generate([[5], [6]], [params(max_tokens=1), params(max_tokens=2)])
    assert one.prompt_token_ids == [5, 6]
    assert [len(each.outputs[0].token_ids) for each in several] == [1, 2]


async def test_likelihoods_that_nobody_asked_for_are_not_there(llm: LLM) -> None:
    """The lists are empty, not absent."""
    output = (await read(ask(llm, [5], max_tokens=1))).result.outputs[0]
    assert (output.logprobs, output.prompt_logprobs) == ([], [])


@pytest.mark.parametrize(
    ("options", "prompt"),
    [
        ({"max_tokens": 0}, [5]),
        ({"use_beam_search": True, "n": 5}, [5]),
        ({"stop": "word"}, [5]),
        ({"repetition_penalty": -1.0}, [5]),
        ({"bad_token_ids": [7]}, [5]),
        ({"embedding_bias": None, "no_repeat_ngram_size": 2}, [5]),
        ({}, [5] * CONTEXT),
        ({}, [5_000]),
    ],
    ids=["no-tokens", "beams", "words-without-ids", "binding", "bad", "ngrams", "too-long", "no-such-id"],
)
async def test_what_only_the_engine_refuses_is_late(
    llm: LLM, options: dict[str, Any], prompt: list[int]
) -> None:
    """The call succeeds; then the text is raised once, and stays on the result."""
    from tensorrt_llm.llmapi import RequestError

    seen = await read(ask(llm, prompt, **options))
    assert isinstance(seen.error, RequestError)
    assert seen.result.error == str(seen.error)
    assert seen.result.finished
    assert [each async for each in seen.result] == []
    assert (await read(ask(llm, [5], max_tokens=1))).tokens == [FIRST_ID]


async def test_what_waits_is_dropped_without_a_word(tmp_path: Path) -> None:
    """An abort ends it in the engine's queue; its result waits for ever, and the others go on."""
    with double_on_path(), open_llm(write_folder(tmp_path), max_batch_size=1) as llm:
        first, waits = ask(llm, [5], max_tokens=30), ask(llm, [6], max_tokens=1)
        await anext(aiter(first))
        waits.abort()
        assert (await read(first)).reasons == ["length"]
        reading = asyncio.create_task(read(waits))
        await read(ask(llm, [7], max_tokens=1))
        assert not reading.done()
        reading.cancel()


async def test_the_priority_of_a_plain_queue_is_passed_over(llm: LLM) -> None:
    """Only a queue that is ordered by priority looks at it; the value itself is checked at once."""
    with pytest.raises(ValueError, match="priority"):
        ask(llm, [5], priority=1.5)
    assert (await read(ask(llm, [5], priority=1.0, max_tokens=1))).tokens == [FIRST_ID]


def test_a_dropped_executor_leaves_only_the_text() -> None:
    """Nobody raises then, and an abort finds nobody."""
    with double_on_path():
        from tensorrt_llm._double.wire import GenerationRequest
        from tensorrt_llm.executor.result import GenerationResult
        from tensorrt_llm.executor.utils import ErrorResponse

        class Executor:
            """Nothing but what a result needs of one."""

            def raise_it(self, error: str | None = None) -> None:
                raise RuntimeError(error)

        executor: Any = Executor()
        request = GenerationRequest(prompt_token_ids=[5], sampling_params=params(), streaming=True)
        result = GenerationResult(request, executor.raise_it, executor)
        del executor
        assert isinstance(result.queue, queue.Queue)
        result.queue.put(ErrorResponse(0, "late", 0))
        assert result.result().error == "late"
        with pytest.raises(AttributeError):
            result.abort()
