"""The scheduler: budgets and pools are kept, everybody ends, nobody is overtaken for ever."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.engines.torch.block_pool import BlockPool
from actors.engines.torch.blocks import BlockAllocator
from actors.engines.torch.prefix_cache import PrefixCache
from actors.engines.torch.scheduler import PIECE_TOKENS, Chunk, Limits, Scheduler
from actors.engines.torch.sequence import Sequence
from protocols.spec import GenerationSpec, StopRules
from protocols.steps import EngineId

BLOCK = 4


def spec(prompt_tokens: int, max_tokens: int) -> GenerationSpec:
    return GenerationSpec(prompt=tuple(range(prompt_tokens)), stop=StopRules(max_tokens=max_tokens))


class Bench:
    """A scheduler whose forward pass is a counter, and which looks at every plan."""

    def __init__(self, *, slots: int = 4, step: int = 12, blocks: int = 16, is_chunked: bool = True) -> None:
        self.limits = Limits(slots, step, BLOCK, is_chunked)
        self.scrubbed: list[int] = []
        self.pool = BlockPool(BlockAllocator(blocks), PrefixCache(BLOCK), self.scrubbed.extend)
        self.scheduler = Scheduler(self.limits, self.pool)
        self.live: dict[int, Sequence] = {}
        self.ended: list[int] = []

    def add(self, prompt_tokens: int, max_tokens: int) -> Sequence:
        engine_id = EngineId(len(self.live) + len(self.ended))
        (sequence,) = self.scheduler.add(engine_id, spec(prompt_tokens, max_tokens)).sequences
        self.live[engine_id] = sequence
        return sequence

    def step(self) -> list[Chunk]:
        chunks = self.scheduler.plan()
        self.check(chunks)
        for chunk in chunks:
            chunk.sequence.computed_tokens = chunk.end
        for chunk in chunks:
            sequence = chunk.sequence
            if chunk.end == len(sequence.tokens):
                self.scheduler.chosen(sequence)
                sequence.tokens.append(0)
                if sequence.output_tokens == sequence.spec.stop.max_tokens:
                    self.end(sequence, is_clean=True)
        return chunks

    def end(self, sequence: Sequence, *, is_clean: bool) -> None:
        self.scheduler.finish(sequence, is_clean=is_clean)
        del self.live[sequence.engine_id]
        self.ended.append(sequence.engine_id)

    def check(self, chunks: list[Chunk]) -> None:
        """What must hold for any plan."""
        sequences = [chunk.sequence.engine_id for chunk in chunks]
        assert len(set(sequences)) == len(sequences) <= self.limits.max_num_seqs
        decodes = sum(chunk.rows == 1 for chunk in chunks)
        extra = 0 if self.limits.is_chunked_prefill else decodes
        assert sum(chunk.rows for chunk in chunks) <= self.limits.step_tokens + extra
        owned = [block for sequence in self.live.values() for block in sequence.blocks]
        assert len(set(owned)) == len(owned) == self.pool.used_blocks
        for chunk in chunks:
            assert not chunk.sequence.is_paused
            assert chunk.rows >= 1
            assert chunk.start == chunk.sequence.computed_tokens
            assert chunk.end <= len(chunk.sequence.tokens) <= len(chunk.sequence.blocks) * BLOCK


@dataclass(frozen=True)
class Load:
    """Requests as (steps before it arrives, prompt, output); a context is 32 tokens."""

    requests: list[tuple[int, int, int]]
    blocks: int
    slots: int
    is_chunked: bool


loads = st.builds(
    Load,
    requests=st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 12), st.integers(1, 20)), min_size=1, max_size=12
    ),
    blocks=st.integers(8, 24),
    slots=st.integers(1, 6),
    is_chunked=st.booleans(),
)


@given(load=loads)
def test_everybody_ends(load: Load) -> None:
    """With a pool that holds one context, any load ends, every plan is legal, and no block is lost."""
    bench = Bench(slots=load.slots, blocks=load.blocks, is_chunked=load.is_chunked)
    for wait, prompt_tokens, max_tokens in load.requests:
        for _ in range(wait):
            bench.step()
        bench.add(prompt_tokens, max_tokens)
    work = sum(prompt + output for _, prompt, output in load.requests)
    for _ in range(20 * work):
        if not bench.live:
            break
        assert bench.step(), "a step with live sequences computes something"
    assert len(bench.ended) == len(load.requests)
    assert bench.pool.used_blocks == 0


@given(load=loads, seed=st.randoms(use_true_random=False))
def test_pauses_and_aborts_at_any_time(load: Load, seed: object) -> None:
    """Held back, let go and aborted at random, plans stay legal and all blocks come back."""
    chance = seed
    bench = Bench(slots=load.slots, blocks=load.blocks, is_chunked=load.is_chunked)
    for wait, prompt_tokens, max_tokens in load.requests:
        bench.add(prompt_tokens, max_tokens)
        for _ in range(wait + 1):
            bench.step()
            for sequence in list(bench.live.values()):
                word = chance.random()  # type: ignore[attr-defined]
                if word < 0.1:
                    bench.end(sequence, is_clean=False)
                elif word < 0.5:
                    sequence.is_paused = not sequence.is_paused
    for sequence in bench.live.values():
        sequence.is_paused = False
    while bench.live:
        assert bench.step()
    assert bench.pool.used_blocks == 0


@given(load=loads)
def test_the_oldest_always_gets_on(load: Load) -> None:
    """The oldest sequence that is not held back is part of every step: nothing overtakes it for ever."""
    bench = Bench(slots=load.slots, blocks=load.blocks, is_chunked=load.is_chunked)
    for _, prompt_tokens, max_tokens in load.requests:
        bench.add(prompt_tokens, max_tokens)
    while bench.live:
        oldest = min(bench.live)
        assert oldest in {chunk.sequence.engine_id for chunk in bench.step()}


def test_decodes_come_first_and_prompts_share_the_rest() -> None:
    """A long prompt takes at most half of what decoding leaves, while shorter ones wait behind it."""
    bench = Bench(step=13, blocks=20)
    running = bench.add(2, 20)
    bench.step()
    long, short, shorter = bench.add(24, 1), bench.add(3, 1), bench.add(2, 1)
    rows = {chunk.sequence.engine_id: chunk.rows for chunk in bench.step()}
    assert rows == {running.engine_id: 1, long.engine_id: 6, short.engine_id: 3, shorter.engine_id: 2}


def test_long_prompts_are_computed_in_whole_pieces() -> None:
    """While a prompt goes on its chunks end at multiples of a piece, whatever its neighbours leave."""
    bench = Bench(slots=8, step=200, blocks=200)
    for prompt_tokens in (2, 300, 90, 150):
        bench.add(prompt_tokens, 6)
    while bench.live:
        for chunk in bench.step():
            assert chunk.end % PIECE_TOKENS == 0 or chunk.end >= len(chunk.sequence.spec.prompt)


def test_whole_prompts_without_chunking() -> None:
    """Without chunked prefill a prompt is computed in one piece, or waits for the next step."""
    bench = Bench(is_chunked=False)
    bench.add(10, 1)
    bench.add(10, 1)
    assert [chunk.rows for chunk in bench.step()] == [10]
    assert [chunk.rows for chunk in bench.step()] == [10]


def test_the_paused_give_way_first() -> None:
    """When blocks run out a paused sequence loses its own before any that runs, old as it may be."""
    bench = Bench(blocks=8)
    paused, running = bench.add(12, 20), bench.add(12, 20)
    bench.step()
    bench.step()
    paused.is_paused = True
    said = paused.output_tokens
    while paused.blocks:
        assert running.engine_id in {chunk.sequence.engine_id for chunk in bench.step()}
    assert paused.computed_tokens == 0
    assert paused.output_tokens == said > 0
    assert running.blocks


def test_the_youngest_gives_way_next() -> None:
    """Among running sequences the youngest is preempted, keeps its tokens, and ends like the others."""
    bench = Bench(blocks=10)
    old, young = bench.add(14, 16), bench.add(14, 16)
    while young.blocks or not young.output_tokens:
        bench.step()
    assert old in bench.live.values()
    said = young.output_tokens
    while bench.live:
        bench.step()
    assert said > 0
    assert bench.ended == [old.engine_id, young.engine_id]


def test_a_paused_sequence_makes_room_for_a_new_one() -> None:
    """A slow reader's blocks are given to a request that waits; it is computed again when it goes on."""
    bench = Bench(blocks=8)
    slow = bench.add(24, 8)
    for _ in range(3):
        bench.step()
    slow.is_paused = True
    bench.add(20, 2)
    while len(bench.live) > 1:
        assert bench.step()
    slow.is_paused = False
    while bench.live:
        assert bench.step()
    assert len(bench.ended) == 2


@pytest.mark.parametrize("is_clean", [True, False])
def test_blocks_of_an_unclean_end_are_scrubbed(is_clean: bool) -> None:
    """Only blocks of a sequence that did not end by itself are zeroed: they may hold anything."""
    bench = Bench()
    sequence = bench.add(5, 9)
    bench.step()
    blocks = list(sequence.blocks)
    bench.end(sequence, is_clean=is_clean)
    assert bench.scrubbed == ([] if is_clean else blocks)
