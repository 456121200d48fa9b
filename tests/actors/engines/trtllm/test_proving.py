"""The proof that an engine still serves: one request of our own, of which no caller wrote a word."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from actors.engines.trtllm.config import TrtllmConfig
from actors.engines.trtllm.requests import proving
from actors.engines.trtllm.requests.asking import Asking
from actors.engines.trtllm.requests.proving import Proof, has_callers_text
from protocols.spec import Guided, GuidedKind
from tests.actors.engines.trtllm.scripted import Output, spec
from tests.actors.engines.trtllm.scripted_llm import ScriptedLLM

if TYPE_CHECKING:
    from actors.engines.trtllm.library import Library
    from protocols.spec import GenerationSpec

pytestmark = pytest.mark.anyio

FAULT = "CUDA error: an illegal memory access was encountered"


@pytest.fixture
def llm() -> ScriptedLLM:
    return ScriptedLLM()


@pytest.fixture
def proof(library: Library, llm: ScriptedLLM) -> Proof:
    """Of an engine whose prompts begin with 1."""
    config = TrtllmConfig(model_path=Path("model"), vocab_size=100, context_length=64)
    return Proof(llm, library, Asking(library, config, None), token_id=1)


async def asked(proof: Proof) -> asyncio.Task[BaseException | None]:
    """The question, once it has reached the engine."""
    task = asyncio.create_task(proof.fault())
    await anyio.wait_all_tasks_blocked()
    return task


async def test_an_engine_that_answers_serves(proof: Proof, llm: ScriptedLLM) -> None:
    """One token of one token, in no words of anybody."""
    question = await asked(proof)
    (output,) = llm.outputs
    assert (output.asked["inputs"], output.asked["sampling_params"].max_tokens) == ([1], 1)
    output.show(Output([5], "length"), finished=True)
    assert await question is None


async def test_an_engine_that_fails_it_too_is_dead(proof: Proof, llm: ScriptedLLM, library: Library) -> None:
    """What it says of this request are its own words."""
    question = await asked(proof)
    cause = library.RequestError(FAULT)
    llm.outputs[0].raise_(cause)
    assert await question is cause


async def test_another_error_is_no_fault(proof: Proof, llm: ScriptedLLM, library: Library) -> None:
    """Unless the library knows of one by now."""
    question = await asked(proof)
    llm.outputs[0].raise_(library.RequestError("no room"))
    assert await question is None
    later, cause = await asked(proof), RuntimeError("the worker has gone")
    llm.break_for_good(cause)
    llm.outputs[1].raise_(library.RequestError("no room"))
    assert await later is cause


@pytest.mark.parametrize("is_broken", [True, False])
async def test_an_engine_that_does_not_answer_is_asked_what_it_knows(
    proof: Proof, llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch, is_broken: bool
) -> None:
    """A fault that the library has noted is the end; one that only hangs is left to those who watch it."""
    monkeypatch.setattr(proving, "_PATIENCE_S", 0.0)
    cause = RuntimeError("the worker has gone")
    if is_broken:
        llm.break_for_good(cause)
    assert await proof.fault() is (cause if is_broken else None)


async def test_who_asks_meanwhile_gets_the_same_answer(proof: Proof, llm: ScriptedLLM) -> None:
    """A fault fails all requests at once, and an engine that may be dead is not sent as many again."""
    questions = [await asked(proof) for _ in range(3)]
    (output,) = llm.outputs
    questions.pop().cancel()
    output.show(Output([5], "length"), finished=True)
    assert await asyncio.gather(*questions) == [None, None]
    await asked(proof)
    assert len(llm.outputs) == 2


async def test_a_stop_leaves_no_question_open(proof: Proof) -> None:
    """Nobody wants to know any more."""
    question = await asked(proof)
    proof.stop()
    with pytest.raises(asyncio.CancelledError):
        await question
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "trtllm-proof"]


@pytest.mark.parametrize(
    "written",
    [
        spec(guided=Guided(kind=GuidedKind.REGEX, constraint="a")),
        spec(cache_salt=""),
        spec(conversation_id="c"),
        spec(trace_headers=(("traceparent", "00"),)),
    ],
    ids=["constraint", "salt", "conversation", "trace headers"],
)
def test_what_a_caller_can_write_into_a_request(written: GenerationSpec) -> None:
    """An error about it may quote any of these."""
    assert has_callers_text(written)


def test_of_ids_and_numbers_no_words_are_made() -> None:
    """A plain request's error is the engine's own."""
    assert not has_callers_text(spec())
