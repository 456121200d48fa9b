"""Reads an engine's steps and holds every delta against what all engines promise."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

import anyio
import msgspec

from protocols.spec import GenerationSpec, Sampling, StopRules
from protocols.steps import EngineId, FinishReason
from tests.conformance.heard_blocks import HeardBlocks
from tests.conformance.heard_logprobs import check_logprobs

if TYPE_CHECKING:
    from collections.abc import Callable

    from protocols.engine import Engine, EngineInfo, SpecPreparer
    from protocols.steps import Delta, EngineStep, Position

# Longer than any step of a tiny model, shorter than the time limit of a test.
STEP_LIMIT_S = 15.0

# Undelivered steps, and the step that was under way: what may still come after a word to the engine.
LATE_TOKENS = 5

_engine_ids = count(1)


def make_spec(
    prompt: tuple[int, ...] = (5, 6, 7), *, n: int = 1, cache_salt: str | None = None, **stop: Any
) -> GenerationSpec:
    """A sampled request with a fixed seed; ``stop`` are fields of `StopRules`."""
    return GenerationSpec(
        prompt=prompt,
        stop=StopRules(**{"max_tokens": 8, **stop}),
        sampling=Sampling(temperature=1.0, seed=7),
        n=n,
        cache_salt=cache_salt,
    )


def changed(spec: GenerationSpec, **changes: Any) -> GenerationSpec:
    """The same request but for these fields."""
    return msgspec.structs.replace(spec, **changes)


@dataclass(eq=False)
class Heard:
    """What an engine has said about one request. Per choice: its tokens, its reasons."""

    engine_id: EngineId
    spec: GenerationSpec
    token_ids: list[list[int]]
    reasons: dict[int, FinishReason] = field(default_factory=dict)
    stop_reasons: dict[int, int | str] = field(default_factory=dict)
    positions: list[list[Position]] = field(default_factory=list)
    prompt_positions: list[Position | None] = field(default_factory=list)
    deltas: int = 0
    cached_tokens: int = 0
    is_ended: bool = False
    error: str | None = None
    # What the last delta of the request said.
    last_reason: FinishReason | None = None

    def __post_init__(self) -> None:
        self.positions = [[] for _ in range(self.spec.n)]

    @property
    def tokens(self) -> list[int]:
        """Of the only choice."""
        (only,) = self.token_ids
        return only

    @property
    def reason(self) -> FinishReason:
        """Of the only choice."""
        return self.reasons[0]

    def on_delta(self, delta: Delta, vocab_size: int) -> None:
        """Take one delta in, or fail the test with the promise it breaks."""
        stop = self.spec.stop
        assert not self.is_ended, f"{delta} after the request's last delta"
        assert 0 <= delta.index < self.spec.n, f"{delta} is about a choice that was not asked for"
        assert delta.index not in self.reasons, f"{delta} after its choice ended"
        assert not delta.cached_tokens or not self.deltas, f"{delta}: cached_tokens belong on the first delta"
        assert 0 <= delta.cached_tokens <= len(self.spec.prompt), f"{delta}: more cached than there is prompt"
        for token_id in delta.token_ids:
            assert type(token_id) is int, f"{delta}: not an int"
            assert 0 <= token_id < vocab_size, f"{delta}: not in the vocabulary"
        check_logprobs(delta, self.spec, vocab_size, is_first=not self.deltas and bool(delta.token_ids))
        self.positions[delta.index] += delta.positions or []
        self.prompt_positions += delta.prompt_positions or []
        self.deltas += 1
        self.cached_tokens += delta.cached_tokens
        self.token_ids[delta.index] += delta.token_ids
        said = self.token_ids[delta.index]
        assert len(said) <= stop.max_tokens, f"{delta}: more than max_tokens"
        stop_ids = stop.eos_token_ids | stop.stop_token_ids
        assert not stop_ids.intersection(said[: stop.min_tokens]), f"{delta}: a stop id before min_tokens"
        assert not stop_ids.intersection(said[:-1]), f"{delta}: went on after a stop id"
        self._on_end(delta)

    def _on_end(self, delta: Delta) -> None:
        if delta.finish_reason is not None:
            self.reasons[delta.index] = delta.finish_reason
        if delta.stop_reason is not None:
            self.stop_reasons[delta.index] = delta.stop_reason
        assert delta.is_last or delta.error is None, f"{delta}: an error ends the request"
        if not delta.is_last:
            return
        self.is_ended = True
        self.error = delta.error
        self.last_reason = delta.finish_reason
        if delta.error is None and delta.finish_reason is not FinishReason.CANCELLED:
            assert set(self.reasons) == set(range(self.spec.n)), f"{delta}: not all choices have ended"


class EngineReader:
    """Submits to a started engine and reads it, as the executor does."""

    def __init__(self, engine: Engine, info: EngineInfo) -> None:
        self.engine = engine
        self.info = info
        self.steps = 0
        self.most_running = 0
        # Of each request, how often the engine said that a sequence of it lost its memory.
        self.preempted: Counter[EngineId] = Counter()
        self.blocks = HeardBlocks(info)
        self.processor_tokens = Counter[str]()
        self._heard: dict[EngineId, Heard] = {}
        self._ended_s = 0.0

    @property
    def live(self) -> list[Heard]:
        """Requests that have not ended, in order of submission."""
        return [heard for heard in self._heard.values() if not heard.is_ended]

    def submit(self, spec: GenerationSpec) -> Heard:
        engine_id = EngineId(next(_engine_ids))
        heard = self._heard[engine_id] = Heard(engine_id, spec, [[] for _ in range(spec.n)])
        self.engine.submit(engine_id, spec)
        return heard

    async def read_step(self) -> EngineStep:
        """The next step, checked and taken into account."""
        with anyio.fail_after(STEP_LIMIT_S):
            step = await self.engine.next_step()
        self.on_step(step)
        return step

    def on_step(self, step: EngineStep) -> None:
        assert step.started_s <= step.ended_s, "a step that ends before it starts"
        assert self._ended_s <= step.ended_s, "a step that ends before the one before it"
        assert 0 <= step.running <= self.info.max_num_seqs, "more sequences than max_num_seqs in a step"
        self._ended_s = step.ended_s
        self.steps += 1
        self.most_running = max(self.most_running, step.running)
        self.blocks.on_step(step)
        for use in step.processors:
            assert use.tokens > 0, f"{use}: a logits processor that was not called"
            assert use.seconds >= 0, f"{use}: less than no time"
            self.processor_tokens[use.name] += use.tokens
        for engine_id in step.preempted:
            heard = self._heard.get(engine_id)
            assert heard is not None, f"{engine_id} was preempted and never submitted"
            assert not heard.is_ended, f"{engine_id} was preempted after its last delta"
            self.preempted[engine_id] += 1
        for delta in step.deltas:
            assert delta.engine_id in self._heard, f"{delta} is about a request that was never submitted"
            self._heard[delta.engine_id].on_delta(delta, self.info.vocab_size)

    async def read_until(self, is_true: Callable[[], bool]) -> None:
        while not is_true():
            await self.read_step()

    async def read_to_end(self, *requests: Heard) -> None:
        """Read until these have ended, all without an error."""
        await self.read_until(lambda: all(heard.is_ended for heard in requests))
        for heard in requests:
            assert heard.error is None, f"request {heard.engine_id} failed: {heard.error}"

    async def complete(self, spec: GenerationSpec) -> Heard:
        """Submit and read to the end."""
        heard = self.submit(spec)
        await self.read_to_end(heard)
        return heard


def fill(reader: EngineReader) -> list[Heard]:
    """Take all slots with the longest requests."""
    longest = make_spec(max_tokens=reader.info.context_length - 3)
    return [reader.submit(longest) for _ in range(reader.info.max_num_seqs)]


def most_choices(reader: EngineReader) -> int:
    """The largest ``n`` that this engine takes; 1 keeps the same promises."""
    return min(reader.engine.capabilities.max_n, reader.info.max_num_seqs)


def preparer_of(reader: EngineReader) -> SpecPreparer:
    """Of an engine with constraints or processors."""
    preparer = reader.engine.preparer
    assert preparer is not None, "an engine with constraints or processors has a preparer"
    return preparer
