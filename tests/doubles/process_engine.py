"""An engine in a child process, as inference libraries run theirs: it can be killed under its driver.

Lines of JSON over two pipes. The driver's threads write commands, read steps, and notice the child's end
whether or not anything runs; no call of the event loop ever waits for the child.

    python -m tests.doubles.process_engine JSON      the child: the synthetic engine with this configuration
"""

from __future__ import annotations

import asyncio
import os
import queue
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from typing import IO

import msgspec
from msgspec import Struct

from actors.engines.bridge import StepBridge
from actors.engines.synthetic import SyntheticConfig, SyntheticEngine
from protocols.engine import EngineInfo, SpecPreparer
from protocols.errors import EngineDead, EngineStartError, StartStopped
from protocols.spec import GenerationSpec
from protocols.steps import Delta, EngineId, EngineStep

# How long the child may take to end by itself once its standard input is closed.
_LEAVE_S = 2.0


class Submit(Struct, frozen=True, tag=True):
    """Begin a request."""

    engine_id: EngineId
    spec: GenerationSpec


class Tell(Struct, frozen=True, tag=True):
    """One of the calls with nothing but an id: abort, pause, resume; or "taken": the next step may come."""

    call: str
    engine_id: EngineId


_TAKEN = Tell("taken", EngineId(0))


class Said(Struct, frozen=True):
    """One step, as it crosses. Both processes read the same monotonic clock."""

    deltas: list[Delta]
    started_s: float
    ended_s: float
    running: int


class ProcessEngine:
    """Implements `protocols.engine.Engine` with a child process. Loop only, but for its two threads."""

    name = "synthetic"
    preparer: SpecPreparer | None = None

    def __init__(self, config: SyntheticConfig) -> None:
        self.capabilities = SyntheticEngine(config).capabilities
        self._config = config
        self._bridge = StepBridge()
        self._child: subprocess.Popen[bytes] | None = None
        self._commands: queue.SimpleQueue[Submit | Tell | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._block_s = 0.0
        self._is_stopped = False
        self.progress = 0
        self.maintenance = None
        self.pending_transfers = 0

    async def start(self) -> EngineInfo:
        """Start the child and wait for its first line."""
        if self._is_stopped:
            raise StartStopped("the engine was stopped before it started")
        child = self._child = _start_child(self._config)
        assert child.stdin is not None
        assert child.stdout is not None
        line = await asyncio.to_thread(child.stdout.readline)
        if self._is_stopped:
            raise StartStopped("the engine was stopped while it was starting")
        if not line:
            raise EngineStartError("the engine's process ended while it was starting")
        info = msgspec.json.decode(line, type=EngineInfo)
        for target, pipe in ((self._write, child.stdin), (self._read, child.stdout)):
            thread = threading.Thread(target=target, args=(pipe,), name=target.__name__, daemon=True)
            thread.start()
            self._threads.append(thread)
        return info

    def submit(self, engine_id: EngineId, spec: GenerationSpec) -> None:
        self._commands.put(Submit(engine_id, spec))

    def abort(self, engine_id: EngineId) -> None:
        self._commands.put(Tell("abort", engine_id))

    def pause(self, engine_id: EngineId) -> None:
        self._commands.put(Tell("pause", engine_id))

    def resume(self, engine_id: EngineId) -> None:
        self._commands.put(Tell("resume", engine_id))

    async def next_step(self) -> EngineStep:
        """The child's next step. Raises EngineDead when it has ended."""
        return await self._bridge.next_step()

    async def stop(self) -> None:
        """Close the child's standard input; kill it when it does not end by that."""
        self._is_stopped = True
        self._commands.put(None)
        self._bridge.close()
        if self._child is not None:
            await asyncio.to_thread(self._end, self._child)

    def block(self, seconds: float) -> None:
        """Keep the thread that reads the child from doing anything, once."""
        self._block_s = seconds

    async def die_now(self) -> None:
        """Kill the child, as the system would that has run out of memory."""
        assert self._child is not None
        self._child.kill()
        await asyncio.to_thread(self._child.wait)

    def _write(self, pipe: IO[bytes]) -> None:
        """The writing thread: commands in their order, until None or the child is gone."""
        try:
            while (command := self._commands.get()) is not None:
                pipe.write(_encoded(command) + b"\n")
                pipe.flush()
            pipe.close()
        except OSError:
            # The child has ended; the reading thread says so.
            return

    def _read(self, pipe: IO[bytes]) -> None:
        """The reading thread: steps until the pipe ends, which it does when the child does."""
        with pipe:
            for line in pipe:
                block_s, self._block_s = self._block_s, 0.0
                time.sleep(block_s)
                said = msgspec.json.decode(line, type=Said)
                self.progress += 1
                self._bridge.deliver(EngineStep(said.deltas, said.started_s, said.ended_s, said.running))
                self._commands.put(_TAKEN)
        assert self._child is not None
        code = self._child.wait()
        if not self._is_stopped:
            self._bridge.fail(EngineDead(f"the engine's process ended with code {code}"))

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        assert child.stdin is not None
        assert child.stdout is not None
        if not self._threads:
            # A start that failed: nobody writes.
            child.stdin.close()
        try:
            child.wait(_LEAVE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        if not self._threads:
            child.stdout.close()
        for thread in self._threads:
            thread.join(1.0)


def _start_child(config: SyntheticConfig) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-m", "tests.doubles.process_engine", _encoded(asdict(config)).decode()]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _encoded(value: object) -> bytes:
    return msgspec.json.encode(value)


async def _serve(engine: SyntheticEngine) -> None:
    """The child: read commands and make steps until standard input ends."""
    _say(await engine.start())
    taken = asyncio.Semaphore(1)
    steps = asyncio.create_task(_make_steps(engine, taken))
    lines = asyncio.StreamReader(limit=2**24)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        match msgspec.json.decode(line, type=Submit | Tell):
            case Submit(engine_id=engine_id, spec=spec):
                engine.submit(engine_id, spec)
            case Tell(call="taken"):
                taken.release()
            case Tell(call=call, engine_id=engine_id):
                getattr(engine, call)(engine_id)
    steps.cancel()


async def _make_steps(engine: SyntheticEngine, taken: asyncio.Semaphore) -> None:
    """One step at a time is under way: a driver that is behind holds the engine back."""
    while True:
        await taken.acquire()
        step = await engine.next_step()
        _say(Said(step.deltas, step.started_s, step.ended_s, step.running))


def _say(value: object) -> None:
    sys.stdout.buffer.write(_encoded(value) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    asyncio.run(_serve(SyntheticEngine(SyntheticConfig(**msgspec.json.decode(sys.argv[1])))))
    # Its driver is gone or has closed the pipe: nothing is worth waiting for.
    os._exit(0)
