"""The engine's process. It lives as long as somebody holds the other ends of its pipes."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection

from tensorrt_llm._double.dying import Dying
from tensorrt_llm._double.iterations import Row
from tensorrt_llm._double.rank import Rank
from tensorrt_llm._double.room import EngineRoom
from tensorrt_llm._double.wire import (
    Answer,
    Call,
    CancellingRequest,
    GenerationRequest,
    Quit,
    Settings,
    StartFailed,
)


def main(settings: Settings, commands: Connection, results: Connection) -> None:
    """What is spawned. An interrupt of the terminal is the caller's business."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    time.sleep(settings.script.load_s)
    if settings.script.dies_while_loading:
        os._exit(1)
    dying = Dying(settings.script, results)
    if settings.script.load_error is not None:
        dying.say(StartFailed(settings.script.load_error))
        os._exit(1)
    asyncio.run(_serve(settings, commands, dying))
    # Threads of the engine that are in a long step are nobody's concern any more.
    os._exit(0)


async def _serve(settings: Settings, commands: Connection, dying: Dying) -> None:
    room = EngineRoom(settings, dying)
    try:
        ready = await room.open()
    except Exception as exc:
        dying.say(StartFailed(f"{type(exc).__name__}: {exc}"))
        return
    dying.say(ready)
    dying.begin()
    await Desk(room, dying).serve(commands)
    await room.close()


class Desk:
    """Takes messages one by one; calls run beside each other."""

    def __init__(self, room: EngineRoom, dying: Dying) -> None:
        self._room = room
        self._dying = dying
        self._left = asyncio.Event()
        self._calls: set[asyncio.Task[None]] = set()
        self._methods: dict[str, Callable[..., Awaitable[object]]] = {
            "fetch_stats": self._fetch_stats,
            "fetch_kv_cache_events": self._fetch_events,
            "kv_cache_capacity": self._capacity,
            "disaggregated_params": self._disaggregated_params,
            "sleep": room.sleeping.sleep,
            "wakeup": room.sleeping.wakeup,
        }

    async def serve(self, commands: Connection) -> None:
        """Until it is told to leave, or nobody is there who could."""
        loop = asyncio.get_running_loop()
        reader = threading.Thread(target=self._read, args=(commands, loop), name="commands", daemon=True)
        reader.start()
        await self._left.wait()

    def _read(self, commands: Connection, loop: asyncio.AbstractEventLoop) -> None:
        """A thread. A message that cannot be unpickled ends the process: nobody would answer for it."""
        while True:
            try:
                data = commands.recv_bytes()
            except (EOFError, OSError):
                os._exit(0)
            try:
                message = pickle.loads(data)
            except BaseException:
                os._exit(1)
            loop.call_soon_threadsafe(self._on_message, message)

    def _on_message(self, message: object) -> None:
        """An engine that is stuck notices nothing, not even that it should leave; polls find nothing new."""
        if self._dying.is_stuck and not (isinstance(message, Call) and message.method.startswith("fetch")):
            return
        match message:
            case GenerationRequest():
                self._room.on_request(message)
            case CancellingRequest():
                self._room.on_cancel(message)
            case Call():
                task = asyncio.create_task(self._answer(message))
                self._calls.add(task)
                task.add_done_callback(self._calls.discard)
            case Quit():
                self._left.set()
            case _:
                raise TypeError(f"unknown message of type {type(message).__name__}")

    async def _answer(self, call: Call) -> None:
        try:
            method = self._methods.get(call.method)
            if method is None:
                raise AttributeError(f"the worker has no method {call.method!r}")
            answer = Answer(call.id, await method(*call.args, **call.kwargs))
        except Exception as exc:
            answer = Answer(call.id, error=f"{type(exc).__name__}: {exc}")
        self._dying.say(answer)

    async def _fetch_stats(self, timeout: float) -> list[Row]:
        """Everything that is there; waits for the first row."""
        return await self._fetch(timeout, lambda rank: rank.rows.rows)

    async def _fetch_events(self, timeout: float) -> list[Row]:
        return await self._fetch(timeout, lambda rank: rank.events.rows)

    async def _fetch(self, timeout: float, rows_of: Callable[[Rank], deque[Row]]) -> list[Row]:
        until_s = time.monotonic() + timeout
        while True:
            rows = [row for rank in self._room.ranks for row in _taken(rows_of(rank))]
            if rows or time.monotonic() >= until_s:
                return rows
            await asyncio.sleep(min(0.01, timeout))

    async def _capacity(self) -> Row:
        rank, size = self._room.ranks[0], self._room.settings.block_tokens
        return {
            "maxNumBlocks": rank.total_blocks,
            "tokensPerBlock": size,
            "maxNumTokens": rank.total_blocks * size,
        }

    async def _disaggregated_params(self) -> Row:
        if self._room.settings.transceiver is None:
            return {}
        return {"ctx_dp_size": self._room.settings.ranks, "held": self._room.transfers.held}


def _taken(rows: deque[Row]) -> list[Row]:
    """All of them, and none is left."""
    taken = list(rows)
    rows.clear()
    return taken
