"""Engines that tests drive by hand, and engines that break one promise each.

They obey `protocols.engine.Engine` on plain anyio, so that the graph around them runs on trio
with a fake clock as well as on asyncio. They are strict the other way too: a graph that reuses an
id, submits before the start or asks for two steps at once fails its test right here.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, cast

import anyio
import anyio.lowlevel

from protocols.engine import EngineCapabilities, EngineInfo, SpecPreparer
from protocols.errors import EngineDead, EngineStartError, StartStopped
from protocols.maintenance import Maintenance
from protocols.spec import GuidedKind
from protocols.steps import Delta, EngineId, EngineStep, FinishReason
from tests.doubles.preparers import HeldPreparer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from protocols.spec import GenerationSpec

# The first made-up token id; ids below it are special tokens of most vocabularies.
FIRST_TOKEN = 1000
VOCAB_SIZE = 32_000
# Of an engine that obeys constraints.
GUIDES = EngineCapabilities(can_pause=True, max_n=8, guided=frozenset(GuidedKind))


def engine_info(max_num_seqs: int = 8, context_length: int = 2048) -> EngineInfo:
    """What a double says after its start."""
    return EngineInfo(
        model="double", context_length=context_length, max_num_seqs=max_num_seqs, vocab_size=VOCAB_SIZE
    )


class ScriptedEngine:
    """Says exactly what the test tells it to, and remembers what it was told.

    The test calls `emit`, `say`, `finish` or `die`. Aborts are confirmed at once, or never with
    ``is_confirming=False``. Steps wait unbounded: the test is this engine's clock.
    """

    name = "scripted"
    preparer: SpecPreparer | None = None

    def __init__(
        self,
        max_num_seqs: int = 8,
        *,
        info: EngineInfo | None = None,
        capabilities: EngineCapabilities | None = None,
        is_confirming: bool = True,
    ) -> None:
        self.info = info or engine_info(max_num_seqs)
        self.capabilities = capabilities or EngineCapabilities(can_pause=True, max_n=8)
        self.is_confirming = is_confirming
        self.submitted: dict[EngineId, GenerationSpec] = {}
        self.live: dict[EngineId, GenerationSpec] = {}
        self.paused: set[EngineId] = set()
        # Every call in order, with repeats: ("submit" | "abort" | "pause" | "resume", id).
        self.calls: list[tuple[str, EngineId]] = []
        self.most_running = 0
        self.starts = 0
        self.stops = 0
        # Counted up with every step, and by a test whose engine computes without making one.
        self.progress = 0
        self.maintenance: Maintenance | None = None
        self.pending_transfers = 0
        self._steps: deque[EngineStep] = deque()
        self._failure: BaseException | None = None
        self._wake = anyio.Event()
        self._is_asked = False

    # What the graph calls.

    async def start(self) -> EngineInfo:
        self.starts += 1
        await anyio.lowlevel.checkpoint()
        if self.stops:
            raise StartStopped("stop() was called before start()")
        return self.info

    def submit(self, engine_id: EngineId, spec: GenerationSpec) -> None:
        assert self.starts, "submit() before start()"
        assert engine_id not in self.submitted, f"engine id {engine_id} was used before"
        self.calls.append(("submit", engine_id))
        self.submitted[engine_id] = self.live[engine_id] = spec
        self.most_running = max(self.most_running, self.running)
        self.wake()

    def abort(self, engine_id: EngineId) -> None:
        self.calls.append(("abort", engine_id))
        if self.is_confirming and engine_id in self.live:
            self.finish(engine_id, FinishReason.CANCELLED)

    def pause(self, engine_id: EngineId) -> None:
        assert self.capabilities.can_pause, "pause() of an engine that cannot"
        self.calls.append(("pause", engine_id))
        self.paused.add(engine_id)

    def resume(self, engine_id: EngineId) -> None:
        assert self.capabilities.can_pause, "resume() of an engine that cannot"
        self.calls.append(("resume", engine_id))
        self.paused.discard(engine_id)
        self.wake()

    async def next_step(self) -> EngineStep:
        assert not self._is_asked, "two callers of next_step() at once"
        self._is_asked = True
        try:
            await anyio.lowlevel.checkpoint_if_cancelled()
            while not self._steps:
                if self._failure is not None:
                    raise EngineDead("the engine died") from self._failure
                await self._advance()
            return self._steps.popleft()
        finally:
            self._is_asked = False

    async def stop(self) -> None:
        self.stops += 1
        self.wake()
        await anyio.lowlevel.checkpoint()

    # What the test calls.

    @property
    def running(self) -> int:
        """Sequences that hold a slot: a request costs its ``n``."""
        return sum(spec.n for spec in self.live.values())

    def ids_of(self, call: str) -> list[EngineId]:
        """The ids one call was made with, in order, with repeats."""
        return [engine_id for made, engine_id in self.calls if made == call]

    def emit(self, *deltas: Delta, **facts: Any) -> None:
        """One step with these deltas, whether or not they make sense. facts: other fields of the step."""
        now_s = anyio.current_time()
        self.progress += 1
        self._steps.append(EngineStep(list(deltas), now_s, now_s, self.running, **facts))
        for delta in deltas:
            if delta.is_last:
                self.live.pop(delta.engine_id, None)
        self.wake()

    def say(self, engine_id: EngineId, *token_ids: int, index: int = 0) -> None:
        """One step with tokens of one choice."""
        self.emit(Delta(engine_id, list(token_ids), index))

    def finish(
        self, engine_id: EngineId, reason: FinishReason = FinishReason.STOP, token_ids: Iterable[int] = ()
    ) -> None:
        """One step that ends a whole request, with the tokens that come with its end."""
        self.emit(Delta(engine_id, list(token_ids), finish_reason=reason, is_last=True))

    def fail(self, engine_id: EngineId, error: str = "this request cannot go on") -> None:
        """One step that fails one request."""
        self.emit(Delta(engine_id, [], is_last=True, error=error))

    def die(self, cause: BaseException | None = None) -> None:
        """No step after those already emitted."""
        self._failure = cause or RuntimeError("killed by the test")
        self.wake()

    def wake(self) -> None:
        """Let a waiting `next_step` look again."""
        self._wake.set()

    async def _advance(self) -> None:
        """Wait until there may be a step. Cancelling it loses nothing."""
        self._wake = anyio.Event()
        await self._wake.wait()


def guiding_engine() -> tuple[ScriptedEngine, HeldPreparer]:
    """It obeys constraints, once they are prepared."""
    engine = ScriptedEngine(capabilities=GUIDES)
    engine.preparer = preparer = HeldPreparer()
    return engine, preparer


class SteppingEngine(ScriptedEngine):
    """A well-behaved engine without a clock of its own: `next_step` makes the step.

    Every live, unpaused request gets one token after ``step_s`` (virtual under a fake clock), ids
    rising from 1000, and ends by length. Hostile engines override `deltas_of`.
    """

    name = "stepping"

    def __init__(self, max_num_seqs: int = 8, *, step_s: float = 0.02, is_confirming: bool = True) -> None:
        super().__init__(max_num_seqs, is_confirming=is_confirming)
        self.step_s = step_s
        self.steps_made = 0
        self.said: dict[EngineId, int] = {}

    def deltas_of(self, engine_id: EngineId, spec: GenerationSpec, position: int) -> list[Delta]:
        """What one request says in one step; ``position`` tokens of each choice are out."""
        is_end = position + 1 >= spec.stop.max_tokens
        reason = FinishReason.LENGTH if is_end else None
        return [
            Delta(engine_id, [FIRST_TOKEN + position], index, reason, is_end and index == spec.n - 1)
            for index in range(spec.n)
        ]

    async def _advance(self) -> None:
        if not self.live.keys() - self.paused:
            await super()._advance()
            return
        await anyio.sleep(self.step_s)
        deltas: list[Delta] = []
        for engine_id in [running for running in self.live if running not in self.paused]:
            position = self.said.get(engine_id, 0)
            self.said[engine_id] = position + 1
            deltas += self.deltas_of(engine_id, self.live[engine_id], position)
        self.steps_made += 1
        self.emit(*deltas)


class NeverFirstToken(ScriptedEngine):
    """Takes every request and says nothing, for ever. Aborts are confirmed."""

    name = "never-first-token"


class IgnoresAbort(SteppingEngine):
    """Goes on with a request that was aborted, to its end."""

    name = "ignores-abort"

    def __init__(self, max_num_seqs: int = 8, *, step_s: float = 0.02) -> None:
        super().__init__(max_num_seqs, step_s=step_s, is_confirming=False)


class DiesAtStep(SteppingEngine):
    """Makes ``step - 1`` good steps, then is dead."""

    name = "dies-at-step"

    def __init__(self, step: int, max_num_seqs: int = 8, *, step_s: float = 0.02) -> None:
        super().__init__(max_num_seqs, step_s=step_s)
        self._fatal_step = step

    async def _advance(self) -> None:
        if self.steps_made + 1 < self._fatal_step:
            await super()._advance()
        else:
            self.die(RuntimeError(f"died at step {self._fatal_step}"))


class RaisesOnSubmit(SteppingEngine):
    """Fails when it is given a request, once per request told to fail; by default for all."""

    name = "raises-on-submit"

    def __init__(self, only: Iterable[int] | None = None, max_num_seqs: int = 8) -> None:
        super().__init__(max_num_seqs)
        self._only = None if only is None else set(only)

    def submit(self, engine_id: EngineId, spec: GenerationSpec) -> None:
        if self._only is None or engine_id in self._only:
            self.calls.append(("submit", engine_id))
            raise RuntimeError("the engine does not take this request")
        super().submit(engine_id, spec)


class EndsWithoutReason(SteppingEngine):
    """Ends every request after its first token, without a finish reason or an error."""

    name = "ends-without-reason"

    def deltas_of(self, engine_id: EngineId, spec: GenerationSpec, position: int) -> list[Delta]:
        return [Delta(engine_id, [FIRST_TOKEN], is_last=True)]


class MalformedTokens(SteppingEngine):
    """Says one thing that is not a token id of the vocabulary, after a good first token."""

    name = "malformed-tokens"
    NEGATIVE = -1
    BEYOND_VOCABULARY = VOCAB_SIZE
    WRONG_TYPE = "1001"

    def __init__(self, bad: object, max_num_seqs: int = 8) -> None:
        super().__init__(max_num_seqs)
        self._bad = bad

    def deltas_of(self, engine_id: EngineId, spec: GenerationSpec, position: int) -> list[Delta]:
        if position != 1:
            return super().deltas_of(engine_id, spec, position)
        return [Delta(engine_id, [cast("int", self._bad)])]


class RepeatsLast(SteppingEngine):
    """Says every request's last delta twice."""

    name = "repeats-last"

    def deltas_of(self, engine_id: EngineId, spec: GenerationSpec, position: int) -> list[Delta]:
        deltas = super().deltas_of(engine_id, spec, position)
        return [*deltas, *(delta for delta in deltas if delta.is_last)]


class SpeaksAfterLast(SteppingEngine):
    """Adds tokens to every request after its last delta."""

    name = "speaks-after-last"

    def deltas_of(self, engine_id: EngineId, spec: GenerationSpec, position: int) -> list[Delta]:
        deltas = super().deltas_of(engine_id, spec, position)
        return [*deltas, Delta(engine_id, [FIRST_TOKEN])] if deltas[-1].is_last else deltas


class UnknownId(SteppingEngine):
    """Speaks in every step for a request that nobody submitted."""

    name = "unknown-id"
    STRANGER = EngineId(2**31)

    def deltas_of(self, engine_id: EngineId, spec: GenerationSpec, position: int) -> list[Delta]:
        return [Delta(self.STRANGER, [FIRST_TOKEN]), *super().deltas_of(engine_id, spec, position)]


class FailsToStart(ScriptedEngine):
    """Cannot start with its configuration."""

    name = "fails-to-start"

    async def start(self) -> EngineInfo:
        await super().start()
        raise EngineStartError("model: 'nowhere' does not exist.", "Give a folder with --model.")


class SlowStart(ScriptedEngine):
    """Loads for ``start_s``; a stop in the meantime ends the start."""

    name = "slow-start"

    def __init__(self, start_s: float, max_num_seqs: int = 8) -> None:
        super().__init__(max_num_seqs)
        self._start_s = start_s

    async def start(self) -> EngineInfo:
        info = await super().start()
        with anyio.move_on_after(self._start_s):
            while not self.stops:
                await self._advance()
            raise StartStopped("stop() was called while the model was loading")
        return info


class RefusesToStop(SteppingEngine):
    """Never comes back from `stop`; only cancelling ends it."""

    name = "refuses-to-stop"

    async def stop(self) -> None:
        await super().stop()
        await anyio.sleep_forever()
