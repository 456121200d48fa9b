"""An engine that breaks its word where a request asks it to, around a paced one that keeps it.

A request chooses its fault by its ``seed`` (`seed_of`), so one of 64 streams is hit and 63 are others.
Token ids go on from the last one of the prompt: an answer that is continued elsewhere stays exact.
It takes any constraint of the form REGEX and obeys none, so that there are guided requests at a set pace.
"""

from __future__ import annotations

import asyncio
import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, cast

import msgspec
from msgspec import Struct

from actors.engines.synthetic import FIRST_TOKEN_ID
from protocols.engine import Engine, EngineCapabilities, EngineInfo
from protocols.errors import EngineDead, EngineStartError
from protocols.spec import GenerationSpec, GuidedKind
from protocols.steps import Delta, EngineId, EngineStep

# Far from any seed that a person or the resolver would choose.
_FIRST_SEED = 7_000_000_000


class Fault(StrEnum):
    """What a marked request does to its engine, after ``at_token`` tokens where nothing else is said."""

    REFUSES = "raises when it is submitted"
    FAILS = "ends with an error"
    ENDS_MUTE = "ends without a reason"
    TEXT = "says a token that is text"
    NEGATIVE = "says a negative token"
    BEYOND = "says a token beyond the vocabulary"
    TRUTH = "says a token that is a truth value"
    FRACTION = "says a token that is a fraction"
    NOTHING = "says a token that is nothing"
    NO_LIST = "says tokens that are not a list"
    STRANGE_CHOICE = "speaks for a choice that was not asked for"
    HANGS = "makes no step any more"
    BLOCKS = "keeps its thread for 3 s"
    FREEZES = "never gives the event loop back"
    DIES = "says that it is dead"
    RAISES = "raises what no engine may raise"
    ARMS = "lets the actor of the settings raise at its next message"


_MALFORMED: dict[Fault, Callable[[EngineId], Delta]] = {
    Fault.TEXT: lambda engine_id: Delta(engine_id, [cast("int", "1001")]),
    Fault.NEGATIVE: lambda engine_id: Delta(engine_id, [-1]),
    Fault.BEYOND: lambda engine_id: Delta(engine_id, [32_000]),
    Fault.TRUTH: lambda engine_id: Delta(engine_id, [True]),
    Fault.FRACTION: lambda engine_id: Delta(engine_id, [cast("int", 1001.0)]),
    Fault.NOTHING: lambda engine_id: Delta(engine_id, [cast("int", None)]),
    Fault.NO_LIST: lambda engine_id: Delta(engine_id, cast("list[int]", "1001")),
    Fault.STRANGE_CHOICE: lambda engine_id: Delta(engine_id, [1001], index=7),
}
MALFORMED = tuple(_MALFORMED)
BLOCK_S = 3.0


def seed_of(fault: Fault) -> int:
    """The ``seed`` of a request that shall do this."""
    return _FIRST_SEED + list(Fault).index(fault)


_FAULT_OF_SEED = {seed_of(fault): fault for fault in Fault}


class HostileSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The environment variable HOSTILE_ENGINE, as JSON.

    heeds_marks: whether requests can choose faults; a neighbour that survives does not heed them.
    at_token: when a marked request's fault happens. error: the text of `Fault.FAILS`.
    failing_every: every so many requests one fails like a marked one; 0 is never.
    in_process: False puts the paced engine into a child process (`tests.doubles.process_engine`).
    start: "" or how it goes wrong: "refuses" (configuration), "crashes", "dies" (its child), "hangs",
    "freezes" (the event loop), "ends at once" (it starts, and is dead).
    stop: "" or how it goes wrong: "waits" for ever, "blocks" the loop, "raises".
    breaks: "module:Class.method" of the actor that `Fault.ARMS` breaks.
    """

    heeds_marks: bool = True
    at_token: int = 10
    error: str = "out of memory for this request"
    failing_every: int = 0
    in_process: bool = True
    start: str = ""
    stop: str = ""
    breaks: str = ""


@dataclass(slots=True)
class _Row:
    """A request: how far its ids are ahead of the paced engine's, what it shall do, and its tokens so far."""

    shift: int
    fault: Fault | None
    tokens: int = 0


def deadlock() -> None:
    """Wait in a library for a lock that this thread holds: no signal and no exception ends that."""
    libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)


class TakesAnyRegex:
    """A `protocols.engine.SpecPreparer` that finds nothing wrong."""

    def find(self, spec: GenerationSpec) -> GenerationSpec | None:
        """At once: there is nothing to compile."""
        return spec.with_grammar("anything")

    async def prepare(self, spec: GenerationSpec) -> GenerationSpec:
        """Never asked."""
        return spec.with_grammar("anything")


class EngineProcess(Protocol):
    """The process in which an engine works, as far as a fault does something to it."""

    def block(self, seconds: float) -> None:
        """Nothing is heard of it for so long, once."""
        ...

    async def die_now(self) -> None:
        """It is killed, and has gone."""
        ...


class HostileEngine:
    """Implements `protocols.engine.Engine` around another one, and breaks it on request.

    process: of the inner engine; None where that has none of its own.
    """

    def __init__(
        self, inner: Engine, settings: HostileSettings, arm: Callable[[], None], process: EngineProcess | None
    ) -> None:
        self.name = inner.name
        self.capabilities: EngineCapabilities = msgspec.structs.replace(
            inner.capabilities, guided=frozenset({GuidedKind.REGEX})
        )
        self.preparer = TakesAnyRegex()
        self.maintenance = inner.maintenance
        self._inner = inner
        self._process = process
        self._settings = settings
        self._arm = arm
        self._rows: dict[EngineId, _Row] = {}
        self._submitted = 0
        self._is_hung = False
        self._vocab_size = 0

    @property
    def pending_transfers(self) -> int:
        """Of the paced engine."""
        return self._inner.pending_transfers

    @property
    def progress(self) -> int:
        """Of the paced engine; one that hangs computes nothing."""
        return 0 if self._is_hung else self._inner.progress

    async def start(self) -> EngineInfo:
        """Start the paced engine, and fail half-way where the settings say so."""
        info = await self._inner.start()
        self._vocab_size = info.vocab_size
        if self._settings.start:
            print(f"hostile: the start {self._settings.start}", flush=True)
        match self._settings.start:
            case "refuses":
                raise EngineStartError("model: half of it is missing.", "Give a whole one.")
            case "crashes":
                raise RuntimeError("a library broke while loading")
            case "dies":
                await self._own_process().die_now()
                raise RuntimeError("the engine's process ended while it was loading")
            case "hangs":
                await asyncio.Event().wait()
            case "freezes":
                deadlock()
            case _:
                pass
        return info

    def submit(self, engine_id: EngineId, spec: GenerationSpec) -> None:
        fault = self._fault_of(spec)
        if fault is Fault.REFUSES:
            raise RuntimeError("this request does not fit")
        last = spec.prompt[-1] if spec.prompt else 0
        self._rows[engine_id] = _Row(max(0, last + 1 - FIRST_TOKEN_ID), fault)
        self._inner.submit(engine_id, msgspec.structs.replace(spec, guided=None))

    def abort(self, engine_id: EngineId) -> None:
        if not self._is_hung:
            self._inner.abort(engine_id)

    def pause(self, engine_id: EngineId) -> None:
        self._inner.pause(engine_id)

    def resume(self, engine_id: EngineId) -> None:
        self._inner.resume(engine_id)

    async def next_step(self) -> EngineStep:
        """The paced engine's step, with what the marked requests made of it."""
        if self._settings.start == "ends at once":
            raise EngineDead("the engine's own health check failed")
        step = await self._inner.next_step()
        deltas = [said for delta in step.deltas for said in self._said(delta)]
        if self._is_hung:
            await asyncio.Event().wait()
        return step.with_deltas(deltas)

    async def stop(self) -> None:
        """Refuses where the settings say so; the child is ended all the same, as a library's would be."""
        await self._inner.stop()
        match self._settings.stop:
            case "waits":
                await asyncio.Event().wait()
            case "blocks":
                deadlock()
            case "raises":
                raise RuntimeError("a library broke while stopping")
            case _:
                pass

    def _own_process(self) -> EngineProcess:
        assert self._process is not None, "this fault needs an engine with a process of its own"
        return self._process

    def _fault_of(self, spec: GenerationSpec) -> Fault | None:
        if spec.is_probe:
            return None
        self._submitted += 1
        every = self._settings.failing_every
        if every and self._submitted % every == 0:
            return Fault.FAILS
        return _FAULT_OF_SEED.get(spec.sampling.seed) if self._settings.heeds_marks else None

    def _said(self, delta: Delta) -> list[Delta]:
        """What becomes of one delta. Of a request that was ended here nothing more is heard."""
        row = self._rows.get(delta.engine_id)
        if row is None:
            return []
        if delta.is_last:
            del self._rows[delta.engine_id]
        elif row.fault is not None and row.tokens >= self._settings.at_token:
            fault, row.fault = row.fault, None
            return self._broken(fault, delta)
        row.tokens += len(delta.token_ids)
        shifted = [self._shifted(token_id, row.shift) for token_id in delta.token_ids]
        return [msgspec.structs.replace(delta, token_ids=shifted)]

    def _shifted(self, token_id: int, shift: int) -> int:
        ids = self._vocab_size - FIRST_TOKEN_ID
        return FIRST_TOKEN_ID + (token_id - FIRST_TOKEN_ID + shift) % ids

    def _broken(self, fault: Fault, delta: Delta) -> list[Delta]:
        """The fault instead of the delta, or beside it; says when, on the clock that all processes share."""
        print(f"hostile: {fault.name} at {time.monotonic():.4f}", flush=True)
        if (malformed := _MALFORMED.get(fault)) is not None:
            return [malformed(delta.engine_id)]
        match fault:
            case Fault.FAILS:
                return self._ended(Delta(delta.engine_id, [], is_last=True, error=self._settings.error))
            case Fault.ENDS_MUTE:
                return self._ended(Delta(delta.engine_id, [], is_last=True))
            case Fault.HANGS:
                self._is_hung = True
                return []
            case Fault.BLOCKS:
                self._own_process().block(BLOCK_S)
            case Fault.FREEZES:
                deadlock()
            case Fault.DIES:
                raise EngineDead("the engine's own health check failed")
            case Fault.RAISES:
                raise KeyError("a bug in the driver")
            case _:
                self._arm()
        return self._said(delta)

    def _ended(self, last: Delta) -> list[Delta]:
        """The paced engine still has it: its confirmation finds no row."""
        del self._rows[last.engine_id]
        self._inner.abort(last.engine_id)
        return [last]
