"""Promises of the double's life: loading, dying, health and shutting down."""

from __future__ import annotations

import asyncio
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.doubles.trtllm_llms import FIRST_ID, ask, open_llm, params, read, write_folder
from tests.doubles.trtllm_site import double_on_path

if TYPE_CHECKING:
    from tensorrt_llm import LLM

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """The library knows no other."""
    return "asyncio"


@pytest.fixture(autouse=True, scope="module")
def _double() -> Iterator[None]:
    with double_on_path():
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("model"))


def _not_opened(model: Path, script: dict[str, Any] | None = None, **arguments: Any) -> None:
    with open_llm(model, script, **arguments):
        raise AssertionError("it was built")


def test_an_unknown_argument_is_named(model: Path) -> None:
    """Before any value is looked at."""
    with pytest.raises(ValueError, match="no_such_thing"):
        _not_opened(model, no_such_thing=1, max_beam_width="wrong")


def test_an_unknown_part_of_an_argument_is_refused(model: Path) -> None:
    """Dictionaries are held to the models that they stand for."""
    with pytest.raises(ValueError, match="no_such_thing"):
        _not_opened(model, kv_cache_config={"no_such_thing": 1})


def test_a_machine_with_too_few_gpus_is_refused(model: Path) -> None:
    """The variable says how many there are; one, where it does not."""
    with pytest.raises(RuntimeError, match="GPUs"):
        _not_opened(model, tensor_parallel_size=2)
    with pytest.raises(RuntimeError, match="GPUs"):
        _not_opened(model, tensor_parallel_size=8, environ={"DOUBLE_GPUS": "4"})


def test_a_folder_that_is_no_model_is_refused(tmp_path: Path) -> None:
    """It must have its configuration."""
    with pytest.raises(RuntimeError, match=r"config\.json"):
        _not_opened(tmp_path)


def test_a_process_that_dies_while_loading_is_an_error(model: Path) -> None:
    """Of the constructor, and without a reason."""
    with pytest.raises(RuntimeError, match="died during initialization"):
        _not_opened(model, {"dies_while_loading": True})


def test_a_process_that_reports_an_error_gives_its_text(model: Path) -> None:
    """As the cause only."""
    with pytest.raises(RuntimeError, match="returned error") as caught:
        _not_opened(model, {"load_error": "no memory"})
    assert "no memory" in str(caught.value.__cause__)


def test_variables_for_the_engine_are_set_first(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They stay set."""
    monkeypatch.setenv("DOUBLE_LEFT_BEHIND", "before")
    with open_llm(model, env_overrides={"DOUBLE_LEFT_BEHIND": "after"}):
        import os

        assert os.environ["DOUBLE_LEFT_BEHIND"] == "after"


def test_it_cannot_be_pickled(model: Path) -> None:
    """It owns processes and threads."""
    with open_llm(model) as llm, pytest.raises(RuntimeError):
        pickle.dumps(llm)


async def test_a_killed_process_fails_what_is_pending_once(model: Path) -> None:
    """With an error of its own; whoever reads again finds what looks like a success."""
    from tensorrt_llm.executor.utils import EngineDeadError

    with open_llm(model, {"dies_at_step": 1}) as llm:
        results = [ask(llm, [5], max_tokens=50) for _ in range(2)]
        seen = [await read(each) for each in results]
        assert all(isinstance(each.error, EngineDeadError) for each in seen)
        assert all(each.result.finished and each.result.error is None for each in seen)
        assert all(each.result.outputs[0].finish_reason is None for each in seen)
        assert [each async for each in results[0]] == []


async def test_a_reader_of_tokens_may_meet_the_cause(model: Path) -> None:
    """What waits in the background is raised after any response, so the death may come as another error."""
    with open_llm(model, {"dies_at_step": 3}) as llm:
        seen = await read(ask(llm, [5], max_tokens=50))
        assert isinstance(seen.error, RuntimeError)
        assert seen.ids[:1] in ([[[FIRST_ID]]], [])
        assert not llm._check_health()


async def test_a_dead_engine_takes_no_more_requests(model: Path) -> None:
    """Before anybody has looked, by its own error; afterwards as an LLM that shuts down, for good."""
    from tensorrt_llm.executor.utils import EngineDeadError

    with open_llm(model, {"dies_at_step": 1}) as llm:
        await read(ask(llm, [5]))
        with pytest.raises(EngineDeadError):
            ask(llm, [5])
        assert not llm._check_health()
        executor: Any = llm._executor
        assert executor.is_shutdown()
        first = executor._fatal_error
        with pytest.raises(RuntimeError, match="shutting down"):
            ask(llm, [5])
        assert executor._fatal_error is first


async def test_the_death_may_fall_between_check_and_submit(model: Path) -> None:
    """The caller gets the engine's error."""
    from tensorrt_llm.executor.utils import EngineDeadError

    with open_llm(model, {"dead_at_submit": 2}) as llm:
        assert (await read(ask(llm, [5], max_tokens=1))).tokens == [FIRST_ID]
        with pytest.raises(EngineDeadError):
            ask(llm, [5])


def test_the_death_needs_no_request(model: Path) -> None:
    """An idle engine dies, too, and whoever asks for its health hears of it."""
    with open_llm(model, {"dies_after_s": 0.0}) as llm:
        executor: Any = llm._executor
        assert executor._process.exited.exception() is not None
        assert not llm._check_health()


async def test_a_hung_engine_looks_healthy(model: Path) -> None:
    """Nothing comes any more, and nobody says so: it does not even leave when it is told to."""
    with open_llm(model, {"hangs_at_step": 2}) as llm:
        result = ask(llm, [5], max_tokens=10)
        await anext(aiter(result))
        waiting = asyncio.create_task(read(result))
        done, _ = await asyncio.wait({waiting}, timeout=0.1)
        assert not done
        assert llm._check_health()
        executor: Any = llm._executor
        ending = threading.Thread(target=llm.shutdown, daemon=True)
        ending.start()
        ending.join(0.1)
        assert ending.is_alive()
        executor._process.kill()
        ending.join(5)
        assert not ending.is_alive()
        assert (await waiting).error is not None


def test_health_may_turn_without_a_reason(model: Path) -> None:
    """From the call on that the script names."""
    with open_llm(model, {"unhealthy_from_check": 2}) as llm:
        assert [llm._check_health() for _ in range(3)] == [True, False, False]


async def test_an_error_in_the_background_meets_whoever_comes_next(model: Path) -> None:
    """Once, and it is nobody's in particular."""
    from tensorrt_llm.llmapi import RequestError

    script = {"traps": [{"prompt": [7], "leaves_error": "something of somebody's"}]}
    with open_llm(model, script) as llm:
        culprit = ask(llm, [7], max_tokens=1)
        with pytest.raises(RequestError, match="somebody"):
            ask(llm, [5])
        assert (await read(ask(llm, [5], max_tokens=1))).tokens == [FIRST_ID]
        assert (await read(culprit)).tokens == [FIRST_ID]
        assert llm._check_health()


async def test_an_error_of_the_system_in_the_background_ends_everything(model: Path) -> None:
    """It is kept as the fatal one."""
    script = {"traps": [{"prompt": [7], "leaves_error": "the system", "is_fatal": True}]}
    with open_llm(model, script) as llm:
        ask(llm, [7], max_tokens=1)
        with pytest.raises(RuntimeError, match="the system"):
            await asyncio.to_thread(_raised_in_a_thread, llm)
        executor: Any = llm._executor
        assert str(executor._fatal_error) == "the system"
        assert not llm._check_health()


def _raised_in_a_thread(llm: LLM) -> None:
    llm.generate_async(inputs=[5], sampling_params=params())


def test_a_health_check_drains_errors_of_requests(model: Path) -> None:
    """They are lost then."""
    script = {"traps": [{"prompt": [7], "leaves_error": "of a request"}]}
    with open_llm(model, script) as llm:
        ask(llm, [7], max_tokens=1)
        assert llm._check_health()
        ask(llm, [5], max_tokens=1)


def test_shutting_down_twice_is_once(model: Path) -> None:
    """What is asked afterwards finds no executor."""
    with open_llm(model) as llm:
        llm.shutdown()
        llm.shutdown()
        assert llm._executor is None
        assert not llm._check_health()
        with pytest.raises(RuntimeError, match="shutting down"):
            ask(llm, [5])
        for ask_for in (llm.get_stats, llm.get_kv_cache_events, llm.get_kv_cache_capacity):
            with pytest.raises(AttributeError):
                ask_for()


async def test_shutting_down_ends_what_is_pending(model: Path) -> None:
    """By the engine's answer to the abort."""
    with open_llm(model) as llm:
        result = ask(llm, [5], max_tokens=100)
        await anext(aiter(result))
        await asyncio.to_thread(llm.shutdown)
        assert (await read(result)).reasons == ["cancelled"]


def test_a_shutdown_may_raise_at_its_end(model: Path) -> None:
    """What waited in the background; the engine is gone all the same, and is forgotten by the next one."""
    with open_llm(model, {"shutdown_error": "left behind"}) as llm:
        with pytest.raises(RuntimeError, match="left behind"):
            llm.shutdown()
        assert llm._executor is not None
        llm.shutdown()
        assert llm._executor is None


def test_a_shutdown_may_take_long(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps its caller."""
    slept: list[float] = []
    with open_llm(model, {"shutdown_s": 90.0}) as llm:
        monkeypatch.setattr(time, "sleep", slept.append)
        llm.shutdown()
        monkeypatch.undo()
    assert 90.0 in slept


@pytest.mark.parametrize("poll", ["get_stats", "get_kv_cache_events"])
def test_polls_may_raise(model: Path, poll: str) -> None:
    """Statistics by an error of the call, events by any."""
    script = {"stats_error": "no statistics", "events_error": "no events"}
    with open_llm(model, script) as llm:
        call: Callable[[float], object] = getattr(llm, poll)
        with pytest.raises(Exception, match="no "):
            call(0.0)


async def test_an_older_release_has_no_error_for_its_death(model: Path) -> None:
    """Then it is an error like any other, and the name is not there."""
    with open_llm(model, {"lacks": ["EngineDeadError", "ConversationParams"], "dies_at_step": 1}) as llm:
        from tensorrt_llm.llmapi import ConversationParams

        with pytest.raises(TypeError, match="conversation_params"):
            ask(llm, [5], conversation_params=ConversationParams(conversation_id="one"))
        seen = await read(ask(llm, [5]))
        assert type(seen.error) is RuntimeError


def test_an_older_release_has_no_such_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are gone wherever they stood."""
    monkeypatch.setenv("TENSORRT_LLM_DOUBLE", '{"lacks": ["EngineDeadError", "ConversationParams"]}')
    with double_on_path():
        import tensorrt_llm.executor.utils
        import tensorrt_llm.llmapi

        assert not hasattr(tensorrt_llm.llmapi, "ConversationParams")
        assert not hasattr(tensorrt_llm.executor.utils, "EngineDeadError")
