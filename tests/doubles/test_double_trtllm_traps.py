"""Promises of the double's script: every trap for single requests closes as it says, and on nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.doubles.trtllm_llms import FIRST_ID, ask, changed_environ, open_llm, read, write_folder
from tests.doubles.trtllm_site import double_on_path

if TYPE_CHECKING:
    from tensorrt_llm import LLM

pytestmark = pytest.mark.anyio

TRAPS: list[dict[str, Any]] = [
    {"prompt": [10], "late_error": "late", "late_error_after": 2},
    {"prompt": [11], "says": [{"ids": [5, 6, 7]}, {}, {"ids": [8, 9], "finish": "LENGTH"}]},
    {"prompt": [12], "only_at_finish": True},
    {"prompt": [13], "timeout_after": 2},
    {"prompt": [14], "shrinks_by": 2},
    {"prompt": [15], "has_no_outputs": True},
    {"prompt": [16], "dead_after": 1},
    {"prompt": [17], "ranks": "missing"},
    {"prompt": [18], "ranks": "zero"},
    {"prompt": [19], "misses_first_logprob": True},
    {"prompt": [20], "never_answers": True},
    {"prompt": [21], "never_answers": True, "ignores_abort": True},
    {
        "prompt": [23],
        "says": [
            {"index": 1, "ids": [5, 6], "finish": "END_ID"},
            {"ids": [7, 8, 9]},
            {"ids": [10], "finish": "LENGTH"},
        ],
    },
    {"prompt": [24], "goes_on_after_abort": 3},
    {"prompt": [22], "at": 2, "late_error": "CUDA error: an illegal memory access was encountered"},
]


@pytest.fixture
def anyio_backend() -> str:
    """The library knows no other."""
    return "asyncio"


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    """One for the module, with a trap for each prompt."""
    folder: Path = write_folder(tmp_path_factory.mktemp("model"))
    with double_on_path(), open_llm(folder, {"traps": TRAPS}) as opened:
        yield opened


async def test_an_error_can_come_after_tokens(llm: LLM) -> None:
    """The tokens before it were read."""
    seen = await read(ask(llm, [10], max_tokens=5))
    assert (seen.ids, str(seen.error), seen.result.error) == ([[[FIRST_ID]]], "late", "late")


async def test_responses_can_be_dictated(llm: LLM) -> None:
    """One may repeat what was there, and tokens come with the finish."""
    seen = await read(ask(llm, [11], max_tokens=5))
    assert seen.ids == [[[5, 6, 7]], [[5, 6, 7]], [[5, 6, 7, 8, 9]]]
    assert seen.reasons == ["length"]


async def test_choices_can_end_one_after_the_other(llm: LLM) -> None:
    """In any order; the request is over with the last response."""
    seen = await read(ask(llm, [23], n=2, temperature=1.0, max_tokens=5))
    assert seen.ids == [[[], [5, 6]], [[7, 8, 9], [5, 6]], [[7, 8, 9, 10], [5, 6]]]
    assert seen.reasons == ["length", "stop"]


async def test_tokens_can_come_after_an_abort(llm: LLM) -> None:
    """So many, and then it is answered."""
    result = ask(llm, [24], max_tokens=90)
    result.abort()
    seen = await read(result)
    assert (len(seen.tokens), seen.reasons) == (3, ["cancelled"])


async def test_everything_can_come_with_the_finish(llm: LLM) -> None:
    """Although it was to be streamed."""
    assert len((await read(ask(llm, [12], max_tokens=4))).ids) == 1


async def test_the_engine_can_end_a_request_by_its_own_clock(llm: LLM) -> None:
    """By a word of its own, and without an error."""
    seen = await read(ask(llm, [13], max_tokens=5))
    assert (seen.reasons, seen.error) == (["timeout"], None)


async def test_ids_can_shrink_below_what_was_shown(llm: LLM) -> None:
    """A stop word cuts what had been in an earlier response."""
    seen = await read(ask(llm, [14], stop_token_ids=[1003]))
    assert [len(ids) for [ids] in seen.ids] == [1, 2, 3, 1]
    assert seen.reasons == ["stop"]


async def test_a_finished_result_can_have_no_outputs(llm: LLM) -> None:
    """And no error either."""
    seen = await read(ask(llm, [15], max_tokens=2))
    assert (seen.result.outputs, seen.result.finished, seen.result.error) == ([], True, None)


async def test_an_error_can_look_like_success_afterwards(llm: LLM) -> None:
    """It is raised once."""
    from tensorrt_llm.executor.utils import EngineDeadError

    seen = await read(ask(llm, [16], max_tokens=5))
    assert isinstance(seen.error, EngineDeadError)
    assert (seen.result.finished, seen.result.error) == (True, None)
    assert await seen.result is seen.result


@pytest.mark.parametrize(("prompt", "rank"), [(17, None), (18, 0)])
async def test_ranks_can_be_useless(llm: LLM, prompt: int, rank: int | None) -> None:
    """Not there, or all zero."""
    output: Any = (await read(ask(llm, [prompt], logprobs=0, max_tokens=2))).result.outputs[0]
    assert [each.rank for entry in output.logprobs for each in entry.values()] == [rank, rank]


async def test_the_first_likelihood_can_be_missing(llm: LLM) -> None:
    """Then there is one fewer than there are tokens."""
    output: Any = (await read(ask(llm, [19], logprobs=0, max_tokens=3))).result.outputs[0]
    assert [list(entry) for entry in output.logprobs] == [[1001], [1002]]


async def test_a_request_can_stay_without_an_answer(llm: LLM) -> None:
    """An abort is answered; or not even that."""
    silent, deaf = ask(llm, [20]), ask(llm, [21])
    readers = [asyncio.create_task(read(each)) for each in (silent, deaf)]
    assert (await read(ask(llm, [5], max_tokens=3))).error is None
    assert not any(reader.done() for reader in readers)
    silent.abort()
    deaf.abort()
    assert (await readers[0]).reasons == ["cancelled"]
    assert not readers[1].done()
    readers[1].cancel()


async def test_a_trap_can_close_once(llm: LLM) -> None:
    """On the request that it counts to."""
    errors = [(await read(ask(llm, [22], max_tokens=1))).error for _ in range(3)]
    assert [error is None for error in errors] == [True, False, True]


async def test_others_notice_nothing(llm: LLM) -> None:
    """A prompt without a trap is answered as ever."""
    seen = await read(ask(llm, [5], max_tokens=2))
    assert (seen.tokens, seen.error) == ([1000, 1001], None)


@given(st.text(min_size=1).filter(lambda name: not name.isidentifier() or name.startswith("x")))
def test_a_trap_that_is_spelled_wrongly_is_refused(name: str) -> None:
    """It would pass for one that was survived."""
    with double_once(), changed_environ({"TENSORRT_LLM_DOUBLE": msgspec.json.encode({name: 1}).decode()}):
        from tensorrt_llm._double.script import read_script

        with pytest.raises(msgspec.ValidationError):
            read_script()


@given(st.lists(st.integers(0, 50)), st.lists(st.integers(0, 50)))
def test_a_trap_is_for_prompts_that_begin_as_it_says(start: list[int], rest: list[int]) -> None:
    """And an empty one is for all."""
    with double_once():
        from tensorrt_llm._double.script import Trap

        trap = Trap(prompt=tuple(start))
        assert trap.is_for([*start, *rest])
        assert trap.is_for(rest) == (rest[: len(start)] == start)


def double_once() -> Any:
    """The package, where the module's LLM has not put it on the path."""
    import contextlib
    import importlib.util

    return contextlib.nullcontext() if importlib.util.find_spec("tensorrt_llm") else double_on_path()
