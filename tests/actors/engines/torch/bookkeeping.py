"""A scheduler whose forward pass writes down what would lie in the KV cache, and which looks at everything.

The memory is modelled: each slot holds the whole text in front of its token, the salt included. So a wrong
hit, a block with two owners and a block that was given away too early all show up as foreign text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actors.engines.torch.block_pool import BlockPool
from actors.engines.torch.blocks import BlockAllocator
from actors.engines.torch.prefix_cache import PrefixCache, content_hash
from actors.engines.torch.scheduler import Chunk, Limits, Scheduler
from protocols.spec import GenerationSpec, Output, StopRules
from protocols.steps import EngineId, KvRemoved, KvStored
from tests.doubles.listeners import RecordingTelemetry

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.engines.torch.sequence import Request, Sequence
    from protocols.steps import KvEvent

BLOCK = 4

# The salt, all tokens up to this one, and whether it was computed as part of a prompt.
Slot = tuple[str | None, tuple[int, ...], bool]


def make_spec(prompt: tuple[int, ...], max_tokens: int, **options: Any) -> GenerationSpec:
    return GenerationSpec(prompt=prompt, stop=StopRules(max_tokens=max_tokens), **options)


class Listener:
    """What somebody knows who only hears the events: hashes, and the parent of each."""

    def __init__(self) -> None:
        self.parents: dict[int, int | None] = {}

    def hear(self, events: tuple[KvEvent, ...]) -> None:
        for event in events:
            if isinstance(event, KvStored):
                assert len(event.token_ids) == len(event.block_hashes) * event.block_tokens
                parent = event.parent_hash
                for block_hash in event.block_hashes:
                    assert block_hash not in self.parents, "stored twice"
                    assert parent is None or parent in self.parents, "stored before its parent"
                    self.parents[block_hash] = parent
                    parent = block_hash
            else:
                assert isinstance(event, KvRemoved), "the engine knows its cache"
                for block_hash in event.block_hashes:
                    del self.parents[block_hash]
                gone = set(event.block_hashes)
                assert not gone.intersection(self.parents.values()), "removed before its children"


class Bench:
    """``choose(sequence)`` gives its next token.

    late: sequences whose next token is being thought about. computed: positions of each sequence, in order;
    first_computed: those before its first token. told_cached: what each request said then.
    """

    def __init__(
        self,
        *,
        slots: int = 4,
        step: int = 12,
        blocks: int = 16,
        is_chunked: bool = True,
        hash_of: Callable[..., int] = content_hash,
        choose: Callable[[Sequence], int] = lambda _: 0,
    ) -> None:
        self.limits = Limits(slots, step, BLOCK, is_chunked)
        self.scrubbed: list[int] = []
        self.total_blocks = blocks
        self.cache = PrefixCache(BLOCK, hash_of)
        # What was said about bounds.
        self.told = RecordingTelemetry()
        on_bound = self.told.bound_reached
        self.pool = BlockPool(BlockAllocator(blocks), self.cache, self._scrub, on_bound)
        self.scheduler = Scheduler(self.limits, self.pool, on_bound)
        self.listener = Listener()
        self.live: dict[int, Request] = {}
        self.ended: list[int] = []
        self.late: list[Sequence] = []
        self.computed: dict[Sequence, list[int]] = {}
        self.told_cached: dict[int, int] = {}
        self.first_computed: dict[Sequence, set[int]] = {}
        self._choose = choose
        self._memory: dict[tuple[int, int], Slot] = {}
        self._unproved: dict[int, Sequence] = {}

    @property
    def sequences(self) -> list[Sequence]:
        """Of all live requests."""
        return [sequence for request in self.live.values() for sequence in request.sequences]

    def add(self, prompt: tuple[int, ...], max_tokens: int, **options: Any) -> Request:
        engine_id = EngineId(len(self.live) + len(self.ended))
        request = self.scheduler.add(engine_id, make_spec(prompt, max_tokens, **options))
        self.live[engine_id] = request
        self.computed |= {sequence: [] for sequence in request.sequences}
        return request

    def add_with_prompt_logprobs(self, prompt: tuple[int, ...], max_tokens: int, n: int) -> Request:
        return self.add(prompt, max_tokens, n=n, output=Output(prompt_logprobs=1))

    def add_one(self, prompt_tokens: int, max_tokens: int) -> Sequence:
        """A request of its own: nobody else has its prompt."""
        first = 1000 * (len(self.live) + len(self.ended) + 1)
        (sequence,) = self.add(tuple(range(first, first + prompt_tokens)), max_tokens).sequences
        return sequence

    def step(self, is_late: Callable[[Sequence], bool] = lambda _: False) -> list[Chunk]:
        """One turn of the engine. Late sequences get their token at the beginning of a later one."""
        ready = [sequence for sequence in self.late if not is_late(sequence)]
        self.late = [sequence for sequence in self.late if sequence not in ready]
        for sequence in ready:
            if not sequence.is_ended:
                sequence.is_late = False
                self._accept(sequence)
        chunks = self.scheduler.plan()
        self.check(chunks)
        for chunk in chunks:
            self._compute(chunk)
        for chunk in chunks:
            sequence = chunk.sequence
            if chunk.end < len(sequence.tokens) or sequence.is_ended:
                continue
            if is_late(sequence):
                sequence.is_late = True
                self.late.append(sequence)
            else:
                self._accept(sequence)
        self.hear()
        return chunks

    def hear(self) -> None:
        self.listener.hear(self.pool.take_events())
        entries = [self.cache.entry_of(block) for block in range(self.total_blocks)]
        assert set(self.listener.parents) == {entry.block_hash for entry in entries if entry is not None}

    def end(self, request: Request) -> None:
        """All its choices at once, as an abort or a failure does."""
        for sequence in list(request.sequences):
            self._finish(sequence, is_clean=False)

    def run_to_end(self) -> None:
        while self.live:
            assert self.step(), "a step with live sequences computes something"

    def check(self, chunks: list[Chunk]) -> None:
        """What must hold for any plan."""
        sequences = [chunk.sequence for chunk in chunks]
        assert len(set(sequences)) == len(sequences) <= self.limits.max_num_seqs
        decodes = sum(chunk.rows == 1 for chunk in chunks)
        extra = 0 if self.limits.is_chunked_prefill else decodes
        assert sum(chunk.rows for chunk in chunks) <= self.limits.step_tokens + extra
        assert len({block for s in self.sequences for block in s.blocks}) == self.pool.used_blocks
        assert self.pool.available_blocks + self.pool.used_blocks == self.total_blocks
        for sequence in self.sequences:
            self._check_memory(sequence)
        for chunk in chunks:
            assert chunk.sequence.is_ready
            assert chunk.rows >= 1
            assert chunk.start == chunk.sequence.computed_tokens
            assert chunk.end <= len(chunk.sequence.tokens) <= len(chunk.sequence.blocks) * BLOCK

    def _check_memory(self, sequence: Sequence) -> None:
        assert len(set(sequence.blocks)) == len(sequence.blocks)
        prompt = len(sequence.spec.prompt)
        for position in range(sequence.computed_tokens):
            salt, text, was_prompt = self._memory[sequence.blocks[position // BLOCK], position % BLOCK]
            assert (salt, text) == (sequence.spec.cache_salt, tuple(sequence.tokens[: position + 1]))
            assert position < prompt or not was_prompt, "its answer has somebody's prompt's bits"
        for block in sequence.blocks[-(-sequence.computed_tokens // BLOCK) :]:
            assert block not in self._unproved, "what nobody proved finite was given away"

    def _compute(self, chunk: Chunk) -> None:
        sequence = chunk.sequence
        for position in range(chunk.start, chunk.end):
            block, text = sequence.blocks[position // BLOCK], tuple(sequence.tokens[: position + 1])
            is_prompt = position < len(sequence.spec.prompt)
            entry = self.cache.entry_of(block)
            assert entry is None, "a block that others may read is written to"
            self._memory[block, position % BLOCK] = (sequence.spec.cache_salt, text, is_prompt)
            self._unproved[block] = sequence
        self.computed[sequence] += range(chunk.start, chunk.end)
        sequence.computed_tokens = chunk.end

    def _accept(self, sequence: Sequence) -> None:
        self._unproved = {block: s for block, s in self._unproved.items() if s is not sequence}
        self.scheduler.chosen(sequence)
        sequence.tokens.append(self._choose(sequence))
        if sequence.output_tokens == 1 and sequence.index == 0:
            self.told_cached[sequence.request.engine_id] = sequence.cached_tokens
            self.first_computed[sequence] = set(self.computed[sequence])
        if sequence.output_tokens == sequence.spec.stop.max_tokens:
            self._finish(sequence, is_clean=True)

    def _finish(self, sequence: Sequence, *, is_clean: bool) -> None:
        self.scheduler.finish(sequence, is_clean=is_clean)
        if not sequence.request.sequences:
            del self.live[sequence.request.engine_id]
            self.ended.append(sequence.request.engine_id)

    def _scrub(self, blocks: list[int]) -> None:
        self.scrubbed += blocks
        for block in blocks:
            self._unproved.pop(block, None)
