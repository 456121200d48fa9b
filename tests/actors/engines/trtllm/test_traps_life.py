"""Traps of life and death: who says that the engine is dead, who does not, and an end that takes too long."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from actors.engines.trtllm import TrtllmEngine
from actors.engines.trtllm.life.children import descendants
from protocols.errors import EngineStartError, StartFault
from protocols.steps import FinishReason
from tests.actors.engines.trtllm.trap_world import (
    PLAIN,
    begin_neighbour,
    check_untouched,
    config_of,
    death_of,
    ids,
    open_trapped,
    outcome,
    wait_gone,
)
from tests.conformance.promises_life import STOP_LIMIT_S, stop
from tests.conformance.reader import EngineReader, Heard, make_spec
from tests.doubles.trtllm_llms import CONTEXT, changed_environ
from tests.doubles.trtllm_site import SCRIPT
from tests.e2e.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60), pytest.mark.usefixtures("double")]

LONG = CONTEXT - 10


def late(text: str, **trap: Any) -> dict[str, Any]:
    return {"traps": [{"prompt": [9], "late_error": text, **trap}]}


# What it is that ends the engine, or only seems to, and whether it does.
DEATHS: dict[str, dict[str, Any]] = {
    "its process is killed in a step": {"dies_at_step": 3},
    "its process is killed beside them": {"dies_after_s": 0.05},
    "its health says no": {"unhealthy_from_check": 2},
    "a device fault": late("CUDA error: an illegal memory access was encountered", late_error_after=2),
    "a pool that is poisoned": late("KV buffer pool poisoned, restart required"),
    "a poisoned one that ran out of memory": late("CUDA out of memory; pool poisoned"),
    "the engine's own error for the dead": {"traps": [{"prompt": [9], "dead_after": 1}]},
    "a process killed under a release without that error": {"dies_at_step": 3, "lacks": ["EngineDeadError"]},
}


@pytest.mark.parametrize("name", DEATHS)
async def test_a_death_is_told_once_with_its_cause(folder: Path, name: str) -> None:
    """What was said before is heard; then all steps say the same, aborts do no harm, and it stops in time."""
    async with open_trapped(config_of(folder), DEATHS[name]) as reader:
        requests = [reader.submit(make_spec((9, number), max_tokens=LONG)) for number in range(3)]
        dead = await death_of(reader)
        assert dead.__cause__ is not None
        assert (await death_of(reader)).__cause__ is dead.__cause__
        for heard in requests:
            assert heard.tokens == ids(len(heard.tokens))
            assert heard.error is None
            reader.engine.abort(heard.engine_id)


async def test_an_idle_engine_that_dies_is_dead_too(folder: Path) -> None:
    """Nobody has asked it anything."""
    async with open_trapped(config_of(folder), {"dies_after_s": 0.5}) as reader:
        assert (await death_of(reader)).__cause__ is not None


async def test_a_hang_looks_like_no_death(folder: Path) -> None:
    """The library says that all is well: progress stands still, which is what the watchdog looks at."""
    async with open_trapped(config_of(folder), {"hangs_at_step": 4}) as reader:
        heard = reader.submit(make_spec(PLAIN, max_tokens=LONG))
        await reader.read_until(lambda: len(heard.tokens) == 3)
        before = reader.engine.progress
        with anyio.move_on_after(1.5) as waiting:
            await reader.read_step()
        assert waiting.cancelled_caught
        assert reader.engine.progress == before
        reader.engine.abort(heard.engine_id)
        (process,) = children_of(reader)
        os.kill(process, signal.SIGKILL)
        assert (await death_of(reader)).__cause__ is not None


def children_of(reader: EngineReader) -> set[int]:
    """The engine's own processes."""
    engine: Any = reader.engine
    found: set[int] = engine._loading.processes
    return found


ENDS: dict[str, dict[str, Any]] = {
    "hung": {"hangs_at_step": 2},
    "slow": {"shutdown_s": 6.0},
    "raising": {"shutdown_error": "an old one"},
    "deaf": {"traps": [{"prompt": list(PLAIN), "ignores_abort": True}]},
    "silent polls": {"stats_hang_s": 3.0, "events_hang_s": 3.0},
}


async def first_token(reader: EngineReader, heard: Heard) -> None:
    await reader.read_until(lambda: bool(heard.tokens))


async def test_an_end_is_bounded_whatever_the_library_does(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With a request in each; the warnings say what had to be done, and nothing of requests."""
    arguments: dict[str, Any] = {
        "enable_iter_perf_stats": True,
        "kv_cache_config": {"event_buffer_max_size": 100},
    }
    config = config_of(folder, {"publishes_kv_events": True}, **arguments)

    with caplog.at_level(logging.WARNING):
        async with AsyncExitStack() as engines, anyio.create_task_group() as stops:
            for script in ENDS.values():
                reader = await engines.enter_async_context(open_trapped(config, script))
                heard = reader.submit(make_spec(PLAIN, max_tokens=LONG))
                await first_token(reader, heard)
                reader.engine.abort(heard.engine_id)
                stops.start_soon(stop, reader.engine)
    said = [record.getMessage() for record in caplog.records if record.name.startswith("actors.")]
    assert [line for line in said if "did not shut down within" in line]
    assert [line for line in said if "did not shut down in order (RequestError)" in line]
    assert "old one" not in "\n".join(said)


STARTS: dict[str, tuple[dict[str, Any], str]] = {
    "it dies while it loads": ({"dies_while_loading": True}, "Executor worker died during initialization"),
    "it says why it cannot": ({"load_error": "no memory"}, "Executor worker returned error"),
}


@pytest.mark.parametrize("name", STARTS)
async def test_a_start_that_fails_says_so_and_leaves_nothing(folder: Path, name: str) -> None:
    """As an error of the start, with a hint; a stop afterwards is harmless."""
    script, words = STARTS[name]
    with pytest.raises(EngineStartError, match=words) as caught:
        async with open_trapped(config_of(folder), script):
            raise AssertionError("it started")
    assert caught.value.hint
    assert caught.value.fault is StartFault.ENGINE


@pytest.mark.parametrize(
    ("arguments", "words", "fault"),
    [
        ({"no_such_argument": 1}, "no_such_argument", StartFault.CONFIGURATION),
        ({"kv_cache_config": {"dtype": "int3"}}, "kv_cache_config.dtype", StartFault.CONFIGURATION),
        ({"tensor_parallel_size": 2}, "GPUs", StartFault.ENGINE),
        ({"gather_generation_logits": True}, "process", StartFault.ENGINE),
    ],
    ids=[
        "an argument it does not know", "a value it refuses", "too few GPUs", "an engine in the worker",
    ],
)  # fmt: skip
async def test_a_start_that_the_library_refuses(
    folder: Path, arguments: dict[str, Any], words: str, fault: StartFault
) -> None:
    """Before anything was loaded, in the library's words; only its arguments are a configuration."""
    with pytest.raises(EngineStartError, match=words) as caught:
        async with open_trapped(config_of(folder, **arguments)):
            raise AssertionError("it started")
    assert caught.value.fault is fault


async def test_a_stop_while_it_loads_ends_what_was_started(folder: Path) -> None:
    """In the time that a stop has, and the start says that it was stopped."""
    before = descendants(os.getpid())
    engine = TrtllmEngine(config_of(folder))
    with changed_environ({SCRIPT: '{"load_s": 60}'}):
        start = asyncio.create_task(engine.start())
        await asyncio.to_thread(wait_until, lambda: descendants(os.getpid()) - before, "nothing was started")
    with anyio.fail_after(STOP_LIMIT_S):
        await engine.stop()
    with pytest.raises(Exception, match="stopped"):
        await start
    wait_gone(descendants(os.getpid()) - before)


class TestAborts:
    """An abort is queued and promises nothing: the last response does."""

    TRAPS = (
        {"prompt": [20], "never_answers": True},
        {"prompt": [21], "goes_on_after_abort": 7},
        {"prompt": [22], "never_answers": True, "ignores_abort": True},
        {"prompt": [29], "ignores_abort": True},
    )

    @pytest.fixture(scope="class")
    async def reader(self, anyio_backend: object, folder: Path) -> AsyncIterator[EngineReader]:
        """One for all of them."""
        async with open_trapped(config_of(folder), {"traps": self.TRAPS}) as opened:
            yield opened

    async def test_one_that_never_answered(self, reader: EngineReader) -> None:
        """It ends without a token, and beside it others go on."""
        neighbour, mute = begin_neighbour(reader), reader.submit(make_spec((20,)))
        await reader.read_until(lambda: bool(neighbour.tokens))
        reader.engine.abort(mute.engine_id)
        await reader.read_to_end(mute)
        assert (mute.tokens, mute.last_reason) == ([], FinishReason.CANCELLED)
        await check_untouched(reader, neighbour)

    async def test_one_that_goes_on_for_a_while(self, reader: EngineReader) -> None:
        """Its late tokens are told, in order, before its end is."""
        heard = reader.submit(make_spec((21,), max_tokens=LONG))
        await reader.read_until(lambda: len(heard.tokens) >= 2)
        for _ in range(3):
            reader.engine.abort(heard.engine_id)
        await reader.read_to_end(heard)
        assert heard.tokens == ids(len(heard.tokens))
        assert 7 <= len(heard.tokens) < LONG
        assert heard.reason is FinishReason.CANCELLED

    async def test_several_choices_of_which_some_have_ended(self, reader: EngineReader) -> None:
        """What had ended keeps its reason: only what is open is cancelled."""
        heard = reader.submit(make_spec(PLAIN, n=3, max_tokens=LONG))
        await reader.read_until(lambda: all(heard.token_ids))
        reader.engine.abort(heard.engine_id)
        await reader.read_to_end(heard)
        assert heard.last_reason is FinishReason.CANCELLED

    async def test_one_that_has_ended_and_one_that_never_was(self, reader: EngineReader) -> None:
        """Both are nothing."""
        heard = await reader.complete(make_spec(PLAIN, max_tokens=3))
        reader.engine.abort(heard.engine_id)
        reader.engine.abort(type(heard.engine_id)(10**6))
        await check_untouched(reader)

    async def test_one_that_is_never_confirmed(self, reader: EngineReader) -> None:
        """What was heard of stays, others are served, and it is told only once that it shall end."""
        deaf = reader.submit(make_spec((29,), max_tokens=50))
        await reader.read_until(lambda: bool(deaf.tokens))
        neighbour = begin_neighbour(reader)
        for _ in range(3):
            reader.engine.abort(deaf.engine_id)
        await check_untouched(reader, neighbour)
        assert not deaf.is_ended
        deaf.is_ended = True

    async def test_one_of_which_nothing_is_heard_counts_as_dropped(self, reader: EngineReader) -> None:
        """Whether it waited or was begun nobody can tell; others are served."""
        silent = reader.submit(make_spec((22,)))
        neighbour = begin_neighbour(reader)
        reader.engine.abort(silent.engine_id)
        await check_untouched(reader, neighbour)
        assert silent.last_reason is FinishReason.CANCELLED


async def test_several_engines_in_one_process(folder: Path) -> None:
    """Each has its own requests, and its own end."""
    async with AsyncExitStack() as engines:
        readers = [await engines.enter_async_context(open_trapped(config_of(folder))) for _ in range(2)]
        for reader in readers:
            await outcome(reader, begin_neighbour(reader))
