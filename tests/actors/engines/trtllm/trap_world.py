"""The driver on a double that misbehaves as a script says: what is heard of its requests, and what it leaves.

The double's engine makes ids up, 1000 first, unless a folder with a model is given.
"""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import asynccontextmanager
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Any

import anyio
import psutil

from actors.engines.trtllm import TrtllmConfig, TrtllmEngine
from actors.engines.trtllm.life.children import descendants
from protocols.errors import EngineDead
from protocols.steps import FinishReason
from tests.conformance.promises_life import STOP_LIMIT_S
from tests.conformance.reader import EngineReader, Heard, make_spec
from tests.doubles.trtllm_llms import CONTEXT, FIRST_ID, changed_environ
from tests.doubles.trtllm_site import SCRIPT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

VOCAB_SIZE = 2000
# On this prompt no trap closes.
PLAIN = (5, 6, 7)
NEIGHBOUR_TOKENS = 40
PATIENCE_S = 5.0


def ids(count: int) -> list[int]:
    """What the engine that makes ids up says first."""
    return list(range(FIRST_ID, FIRST_ID + count))


def config_of(folder: Path, changes: Mapping[str, Any] | None = None, **arguments: Any) -> TrtllmConfig:
    """changes: fields of the configuration. arguments: keywords of the library's LLM."""
    given: dict[str, Any] = {"max_batch_size": 8, "max_num_tokens": 64, "skip_tokenizer_init": True}
    fields: dict[str, Any] = {"vocab_size": VOCAB_SIZE, "context_length": CONTEXT, **(changes or {})}
    return TrtllmConfig(model_path=folder, arguments={**given, **arguments}, **fields)


@asynccontextmanager
async def open_trapped(
    config: TrtllmConfig, script: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None
) -> AsyncIterator[EngineReader]:
    """A started engine. It is stopped in bounded time, and leaves no process and no task."""
    # It would be taken for a process of the engine's.
    resource_tracker.ensure_running()
    before, tasks_before = descendants(os.getpid()), asyncio.all_tasks()
    engine = TrtllmEngine(config)
    changes = {SCRIPT: json.dumps(script or {}), "DOUBLE_STEP_MS": "2", **(environ or {})}
    try:
        with changed_environ(changes):
            info = await engine.start()
        yield EngineReader(engine, info)
    finally:
        with anyio.CancelScope(shield=True), anyio.fail_after(STOP_LIMIT_S):
            await engine.stop()
    wait_gone(descendants(os.getpid()) - before)
    left = asyncio.all_tasks() - tasks_before
    assert not [task for task in left if task.get_name().startswith("trtllm-")]


def wait_gone(pids: set[int]) -> None:
    """Until these have ended; one that was killed may not have heard of it yet."""
    alive = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    _, left = psutil.wait_procs(alive, timeout=PATIENCE_S)
    assert not left


async def outcome(reader: EngineReader, *requests: Heard) -> None:
    """Until these have ended, in whatever way."""
    await reader.read_until(lambda: all(heard.is_ended for heard in requests))


async def death_of(reader: EngineReader) -> EngineDead:
    """Read until the engine is dead; everything before that is held to the promises."""
    while True:
        try:
            await reader.read_step()
        except EngineDead as exc:
            return exc


def begin_neighbour(reader: EngineReader) -> Heard:
    """Somebody who shall notice nothing."""
    return reader.submit(make_spec(PLAIN, max_tokens=NEIGHBOUR_TOKENS))


async def check_untouched(reader: EngineReader, *neighbours: Heard) -> None:
    """Those who were there, and one who comes now, get all they asked for."""
    later = begin_neighbour(reader)
    await reader.read_to_end(*neighbours, later)
    for each in (*neighbours, later):
        assert each.tokens == ids(NEIGHBOUR_TOKENS)
        assert each.reason is FinishReason.LENGTH
