"""An engine without a model: made-up token ids at a set pace, for load tests and smoke tests.

Steps are made when they are asked for, so nothing is ever undelivered, and a graph that is behind
holds the engine back. One clock serves all requests: at each tick every running request gets one
token. Prompts cost nothing: the first token comes at the first tick after the submit.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING

from protocols.engine import EngineCapabilities, EngineInfo
from protocols.errors import EngineDead, EngineStartError, StartStopped
from protocols.spec import Sampling
from protocols.steps import Delta, EngineStep, FinishReason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from protocols.spec import GenerationSpec, StopRules
    from protocols.steps import EngineId

# Most vocabularies keep special tokens, which carry no text, below this id.
FIRST_TOKEN_ID = 1000
# Choices per request; a choice costs one delta a step and nothing else.
MOST_CHOICES = 128
# A waiting `next_step` notices a stop at its tick, so the longest step bounds the stop.
LONGEST_STEP_MS = 10_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticConfig:
    """step_ms: milliseconds between two tokens of a request; 0 is as fast as they are read."""

    model: str = "synthetic"
    context_length: int = 2048
    max_num_seqs: int = 256
    vocab_size: int = 32_000
    step_ms: float = 20.0


class StepClock:
    """Ends one step every ``step_s`` on a grid. A clock that is behind goes on from now.

    Small delays, and timers that are early (uvloop's count whole milliseconds), do not add up: up to
    one step late, the next step is still due on the grid.
    """

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self._began_s = 0.0
        self._due_s = 0.0

    def begin(self, now_s: float) -> None:
        """The first step after an idle time begins now."""
        self._began_s = now_s
        self._due_s = now_s + self._step_s

    def wait_s(self, now_s: float) -> float:
        """How long until the step that is under way ends; 0 when it is late."""
        return max(0.0, self._due_s - now_s)

    def end(self, now_s: float) -> float:
        """The step ends and the next one begins. Returns when the ended one began."""
        began_s, self._began_s = self._began_s, now_s
        is_behind = now_s >= self._due_s + self._step_s
        self._due_s = (now_s if is_behind else self._due_s) + self._step_s
        return began_s


@dataclass(slots=True, eq=False)
class _Row:
    """One request. Its choices go in step: they say the same ids and end together."""

    engine_id: EngineId
    n: int
    stop: StopRules
    stop_ids: frozenset[int]
    token_ids: Iterator[int]
    tokens_left: int
    is_paused: bool = False


class SyntheticEngine:
    """Says 1000, 1001, ... for every choice of every request, and obeys their stop rules.

    Sampling options are accepted and, there being no model, change nothing. Requests beyond
    ``max_num_seqs`` wait inside in order of arrival. Everything runs in the caller's event loop.
    """

    name = "synthetic"

    def __init__(self, config: SyntheticConfig) -> None:
        self.capabilities = EngineCapabilities(
            can_pause=True,
            sampling=frozenset(Sampling.__struct_fields__),
            max_n=min(MOST_CHOICES, config.max_num_seqs),
        )
        # It obeys neither constraints nor processors.
        self.preparer = None
        self.maintenance = None
        self.pending_transfers = 0
        self._config = config
        self._clock = StepClock(config.step_ms / 1000)
        self._free = config.max_num_seqs
        self._waiting: dict[EngineId, _Row] = {}
        self._running: dict[EngineId, _Row] = {}
        self._paused: dict[EngineId, _Row] = {}
        # Last words of requests that ended between two steps.
        self._notices: list[Delta] = []
        self._work = asyncio.Event()
        self._is_stopped = False
        self._steps_made = 0

    @property
    def progress(self) -> int:
        return self._steps_made

    async def start(self) -> EngineInfo:
        """Check the configuration; there is nothing to load."""
        if self._is_stopped:
            raise StartStopped("the synthetic engine was stopped before it started")
        config = self._config
        _check(config)
        return EngineInfo(
            model=config.model,
            context_length=config.context_length,
            max_num_seqs=config.max_num_seqs,
            vocab_size=config.vocab_size,
            description=f"no model, a token per request every {config.step_ms:g} ms",
        )

    def submit(self, engine_id: EngineId, spec: GenerationSpec) -> None:
        stop = spec.stop
        stop_ids = stop.eos_token_ids | stop.stop_token_ids
        vocabulary = range(FIRST_TOKEN_ID, self._config.vocab_size)
        if stop.min_tokens and len(stop_ids) >= len(vocabulary) and stop_ids.issuperset(vocabulary):
            error = "min_tokens cannot be reached: every token id ends the request"
            self._notices.append(Delta(engine_id, [], is_last=True, error=error))
        else:
            token_ids = _made_up_ids(vocabulary, stop_ids, stop.min_tokens)
            self._waiting[engine_id] = _Row(engine_id, spec.n, stop, stop_ids, token_ids, stop.max_tokens)
            self._admit()
        self._wake()

    def abort(self, engine_id: EngineId) -> None:
        if self._waiting.pop(engine_id, None) is None:
            row = self._running.pop(engine_id, None) or self._paused.pop(engine_id, None)
            if row is None:
                return
            self._free += row.n
        self._admit()
        self._notices.append(Delta(engine_id, [], finish_reason=FinishReason.CANCELLED, is_last=True))
        self._wake()

    def pause(self, engine_id: EngineId) -> None:
        if row := self._waiting.get(engine_id):
            row.is_paused = True
        elif row := self._running.pop(engine_id, None):
            self._paused[engine_id] = row

    def resume(self, engine_id: EngineId) -> None:
        if row := self._waiting.get(engine_id):
            row.is_paused = False
        elif row := self._paused.pop(engine_id, None):
            self._running[engine_id] = row
            self._wake()

    async def next_step(self) -> EngineStep:
        """Wait for the tick and make the step. Raises EngineDead once stopped, at the tick."""
        while True:
            await self._work.wait()
            # At least one turn of the loop a step, so that a pace of 0 starves nobody.
            await asyncio.sleep(self._clock.wait_s(time.monotonic()))
            if self._is_stopped:
                raise EngineDead("the synthetic engine was stopped")
            if self._running or self._notices:
                return self._make_step()
            # What was running has been paused since the last step.
            self._work.clear()

    async def stop(self) -> None:
        """Nothing to end; an idle `next_step` wakes up."""
        self._is_stopped = True
        self._work.set()

    def _wake(self) -> None:
        if not self._work.is_set():
            self._work.set()
            self._clock.begin(time.monotonic())

    def _admit(self) -> None:
        """Give free slots to those who wait, in order of arrival."""
        while self._waiting:
            row = next(iter(self._waiting.values()))
            if row.n > self._free:
                return
            del self._waiting[row.engine_id]
            self._free -= row.n
            (self._paused if row.is_paused else self._running)[row.engine_id] = row

    def _make_step(self) -> EngineStep:
        """The hot path: for each token one list and one delta, and nothing else."""
        deltas, self._notices = self._notices, []
        notices = len(deltas)
        ended: list[_Row] = []
        for row in self._running.values():
            token_id = next(row.token_ids)
            row.tokens_left -= 1
            if row.tokens_left == 0 or token_id in row.stop_ids:
                deltas += _last_deltas(row, token_id)
                ended.append(row)
            elif row.n == 1:
                deltas.append(Delta(row.engine_id, [token_id]))
            else:
                deltas += [Delta(row.engine_id, [token_id], index) for index in range(row.n)]
        now_s = time.monotonic()
        self._steps_made += 1
        # Every running sequence said exactly one thing.
        step = EngineStep(deltas, self._clock.end(now_s), now_s, running=len(deltas) - notices)
        self._release(ended)
        return step

    def _release(self, ended: list[_Row]) -> None:
        for row in ended:
            del self._running[row.engine_id]
            self._free += row.n
        self._admit()
        if not self._running:
            self._work.clear()


def _made_up_ids(vocabulary: range, stop_ids: frozenset[int], min_tokens: int) -> Iterator[int]:
    """The vocabulary again and again; a stop id is passed over while it may not be chosen."""
    token_ids = chain.from_iterable(repeat(vocabulary))
    if not min_tokens:
        return token_ids
    allowed = (token_id for token_id in token_ids if token_id not in stop_ids)
    return chain(islice(allowed, min_tokens), token_ids)


def _last_deltas(row: _Row, token_id: int) -> list[Delta]:
    """The end of all choices of a request, by the rule that ended them."""
    reason, stop_reason = FinishReason.LENGTH, None
    if token_id in row.stop.eos_token_ids:
        reason = FinishReason.EOS
    elif token_id in row.stop.stop_token_ids:
        reason, stop_reason = FinishReason.STOP, token_id
    return [
        Delta(row.engine_id, [token_id], index, reason, is_last=index == row.n - 1, stop_reason=stop_reason)
        for index in range(row.n)
    ]


def _check(config: SyntheticConfig) -> None:
    """Raises EngineStartError for the first value that cannot work."""
    for field, least in (("context_length", 2), ("max_num_seqs", 1), ("vocab_size", FIRST_TOKEN_ID + 1)):
        value = getattr(config, field)
        if value < least:
            raise EngineStartError(f"{field}: {value} is not accepted:", f"{least} or more.")
    if not 0 <= config.step_ms <= LONGEST_STEP_MS:
        raise EngineStartError(
            f"step_ms: {config.step_ms} is not accepted:", f"0 to {LONGEST_STEP_MS:g} milliseconds."
        )
