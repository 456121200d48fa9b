"""A load tells that it goes on, fails with a reason, and is ended by whoever no longer wants it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from actors.engines.trtllm import loading
from actors.engines.trtllm.config import TrtllmConfig
from actors.engines.trtllm.loading import Loading, info_of
from protocols.errors import EngineStartError, StartFault, StartStopped

if TYPE_CHECKING:
    from actors.engines.trtllm.library import Library

pytestmark = pytest.mark.anyio

Build = Callable[..., Any]


def config(**settings: Any) -> TrtllmConfig:
    """Of a small engine."""
    return TrtllmConfig(model_path=Path("model"), vocab_size=100, context_length=64, **settings)


def fake_llm(**said: Any) -> Any:
    """What an ``LLM`` says of itself."""
    return SimpleNamespace(
        args=SimpleNamespace(**said), get_kv_cache_capacity=dict, shutdown=lambda: None, _executor=None
    )


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Callable[[Build], None]:
    """``build(constructor)``: what stands for the library's ``LLM``."""

    def use(constructor: Build) -> None:
        library = SimpleNamespace(LLM=constructor, version="1.3.0")
        monkeypatch.setattr(loading, "import_library", lambda: library)

    return use


async def test_it_tells_its_stages_and_that_one_goes_on(
    build: Callable[[Build], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same stage again and again, until the library is through."""
    monkeypatch.setattr(loading, "STILL_S", 0.01)
    told: list[str] = []
    enough = threading.Event()

    def slow(**_arguments: Any) -> Any:
        assert enough.wait(30)
        return fake_llm()

    def tell(stage: str, _fraction: float) -> None:
        told.append(stage)
        if told.count("loading") > 3:
            enough.set()

    build(slow)
    await Loading(config(), tell).run()
    assert list(dict.fromkeys(told)) == ["importing", "loading", "asking"]


class Refusal(ValueError):
    """As pydantic's: of several lines."""

    def __str__(self) -> str:
        return "1 validation error\nkv_cache_config.dtype\n  Value error, unknown"


@pytest.mark.parametrize(
    ("exc", "fault", "hint"),
    [
        (ImportError("libcuda.so.1"), StartFault.CONFIGURATION, "Repair"),
        (ValueError("kv_cache_confg"), StartFault.CONFIGURATION, "--extra-engine-args"),
        (TypeError("unexpected keyword"), StartFault.CONFIGURATION, "--extra-engine-args"),
        (Refusal(), StartFault.CONFIGURATION, "--extra-engine-args"),
        (
            FileNotFoundError(2, "No such file", "model.safetensors"),
            StartFault.UNAVAILABLE,
            "files of the model",
        ),
        (
            PermissionError(13, "Permission denied", "model/config.json"),
            StartFault.UNAVAILABLE,
            "files of the model",
        ),
        (
            OSError(5, "Input/output error", "model/a.safetensors"),
            StartFault.UNAVAILABLE,
            "files of the model",
        ),
        (OSError("no file named config.json in model"), StartFault.UNAVAILABLE, "files of the model"),
        (PermissionError(13, "Permission denied", "/dev/shm/psm_1"), StartFault.ENGINE, "log"),
        (OSError(28, "No space left on device", "/dev/shm/psm_1"), StartFault.ENGINE, "log"),
        (OSError(28, "No space left on device", "models/other"), StartFault.ENGINE, "log"),
        (OSError(98, "Address already in use"), StartFault.ENGINE, "log"),
        (BlockingIOError(11, "Resource temporarily unavailable"), StartFault.ENGINE, "log"),
        (TimeoutError("the workers of this model did not come up"), StartFault.ENGINE, "log"),
        (OSError(24, "Too many open files: model"), StartFault.ENGINE, "log"),
        (ConnectionResetError("by its worker"), StartFault.ENGINE, "log"),
        (RuntimeError("Executor worker died during initialization"), StartFault.ENGINE, "log"),
        (MemoryError("CUDA out of memory"), StartFault.ENGINE, "log"),
        (SystemExit("a panic"), StartFault.ENGINE, "log"),
    ],
)
async def test_a_failure_says_what_to_look_at(
    build: Callable[[Build], None], exc: BaseException, fault: StartFault, hint: str
) -> None:
    """In the library's words and ours, one line; and whether the same start would fail again."""

    def failing(**_arguments: Any) -> Any:
        raise exc

    build(failing)
    with pytest.raises(EngineStartError) as caught:
        await Loading(config(), None).run()
    assert " ".join(str(exc).split()) in caught.value.problem
    assert len(str(caught.value).splitlines()) == 1
    assert hint in caught.value.hint
    assert caught.value.fault is fault


@pytest.mark.parametrize(
    "exc", [MemoryError(), RuntimeError("\n"), AssertionError("")], ids=lambda exc: type(exc).__name__
)
async def test_a_failure_without_words_is_called_by_its_type(
    build: Callable[[Build], None], exc: Exception
) -> None:
    """And by nothing else."""

    def failing(**_arguments: Any) -> Any:
        raise exc

    build(failing)
    with pytest.raises(EngineStartError) as caught:
        await Loading(config(), None).run()
    assert caught.value.problem == f"TensorRT-LLM could not be loaded: {type(exc).__name__}."


async def test_one_that_is_given_up_ends_as_stopped(
    build: Callable[[Build], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its library raises when its processes are gone."""
    begun, ended = threading.Event(), threading.Event()

    def end_all(_pids: set[int], _patience_s: float) -> int:
        ended.set()
        return 0

    def waiting(**_arguments: Any) -> Any:
        begun.set()
        assert ended.wait(30)
        raise RuntimeError("Executor worker died during initialization")

    build(waiting)
    monkeypatch.setattr(loading, "end_all", end_all)
    load = Loading(config(), None)
    running = asyncio.create_task(load.run())
    assert await asyncio.to_thread(begun.wait, 30)
    await asyncio.to_thread(load.give_up)
    with pytest.raises(StartStopped):
        await running


async def test_giving_one_up_ends_also_what_comes_late(
    build: Callable[[Build], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the library has started at once, which makes it give up; then what it started meanwhile."""
    alive: set[int] = set()
    ends: list[set[int]] = []
    begun, ended = threading.Event(), threading.Event()

    def end_all(pids: set[int], _patience_s: float) -> int:
        ends.append(pids)
        alive.difference_update(pids)
        ended.set()
        return 0

    def waiting(**_arguments: Any) -> Any:
        alive.add(11)
        begun.set()
        assert ended.wait(30)
        alive.add(12)
        raise RuntimeError("Executor worker died during initialization")

    build(waiting)
    monkeypatch.setattr(loading, "end_all", end_all)
    monkeypatch.setattr(loading, "descendants", lambda _pid: set(alive))
    load = Loading(config(), None)
    running = asyncio.create_task(load.run())
    assert await asyncio.to_thread(begun.wait, 30)
    await asyncio.to_thread(load.give_up)
    with pytest.raises(StartStopped):
        await running
    assert ends == [{11}, {12}]


async def test_one_that_nobody_waits_for_any_more_is_still_known(build: Callable[[Build], None]) -> None:
    """A start that was cancelled in its last moment: what was loaded can be ended."""
    through = threading.Event()

    def quick(**_arguments: Any) -> Any:
        assert through.wait(30)
        return fake_llm()

    build(quick)
    load = Loading(config(), None)
    running = asyncio.create_task(load.run())
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait({running})
    through.set()
    assert load._thread is not None
    await asyncio.to_thread(load._thread.join, 30)
    assert load.loaded is not None


def test_what_the_engine_does_not_say_is_what_it_was_told(library: Library) -> None:
    """Of its own arguments some stay empty in this process."""
    arguments = {
        "max_batch_size": 8,
        "max_num_tokens": 512,
        "enable_attention_dp": True,
        "tensor_parallel_size": 2,
    }
    info = info_of(fake_llm(max_seq_len=None, max_batch_size=None), library, config(arguments=arguments))
    assert (info.context_length, info.max_num_seqs, info.max_num_batched_tokens) == (64, 16, 512)
    assert (info.data_parallel_size, info.max_prompt_tokens) == (2, 512)
    assert info_of(fake_llm(max_seq_len=48), library, config()).context_length == 48


async def test_a_stop_that_fails_hides_no_failed_start(
    build: Callable[[Build], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told is what came first."""

    def fail() -> None:
        raise RuntimeError("of the stop")

    def broken(*_: object) -> None:
        raise RuntimeError("of the start")

    build(lambda **_arguments: SimpleNamespace(shutdown=fail))
    monkeypatch.setattr(loading, "info_of", broken)
    with pytest.raises(EngineStartError, match="of the start"):
        await Loading(config(), None).run()


def test_an_older_release_does_not_say_how_much_its_cache_holds(library: Library) -> None:
    """It serves all the same; a block has as many tokens as it was told."""
    llm = fake_llm()
    del llm.get_kv_cache_capacity
    info = info_of(llm, library, config(arguments={"kv_cache_config": {"tokens_per_block": 16}}))
    assert (info.block_tokens, info.total_blocks) == (16, None)


def test_with_chunked_prefill_a_prompt_may_fill_the_context(library: Library) -> None:
    """Without it, one step."""
    chunked = config(arguments={"enable_chunked_prefill": True})
    assert info_of(fake_llm(), library, chunked).max_prompt_tokens is None


def test_a_prompt_that_is_shared_may_be_longer_than_a_step(library: Library) -> None:
    """As many times as there are context-parallel ranks; the library refuses one token more."""
    from tensorrt_llm._double.asking import check_length

    arguments = {"max_num_tokens": 512, "context_parallel_size": 2}
    longest = info_of(fake_llm(), library, config(arguments=arguments)).max_prompt_tokens
    assert longest == 1024
    args: Any = SimpleNamespace(enable_chunked_prefill=False, **arguments)
    check_length([1] * longest, args, None)
    with pytest.raises(library.RequestError):
        check_length([1] * (longest + 1), args, None)


@pytest.mark.parametrize(
    ("arguments", "shape"),
    [
        ({}, "tensor parallel 1, pipeline parallel 1"),
        ({"context_parallel_size": 1}, "tensor parallel 1, pipeline parallel 1"),
        ({"context_parallel_size": 4}, "tensor parallel 1, pipeline parallel 1, context parallel 4"),
        (
            {"tensor_parallel_size": 2, "enable_attention_dp": True},
            "tensor parallel 2, pipeline parallel 1, 2 attention-DP ranks",
        ),
    ],
)
def test_its_description_says_how_it_is_spread(
    library: Library, arguments: dict[str, Any], shape: str
) -> None:
    """Over contexts and ranks where there are several."""
    info = info_of(fake_llm(), library, config(arguments=arguments))
    assert info.description == f"TensorRT-LLM {library.version}, {shape}"
