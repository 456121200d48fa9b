"""The scheduler: budgets and pools are kept, everybody ends, nobody is overtaken for ever."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from actors.engines.torch.scheduler import PIECE_TOKENS
from protocols.bounds import Bound
from tests.actors.engines.torch.bookkeeping import Bench


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
        bench.add_one(prompt_tokens, max_tokens)
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
        bench.add_one(prompt_tokens, max_tokens)
        for _ in range(wait + 1):
            bench.step()
            for sequence in bench.sequences:
                word = chance.random()  # type: ignore[attr-defined]
                if word < 0.1:
                    bench.end(sequence.request)
                elif word < 0.5:
                    sequence.is_paused = not sequence.is_paused
    for sequence in bench.sequences:
        sequence.is_paused = False
    while bench.live:
        assert bench.step()
    assert bench.pool.used_blocks == 0


@given(load=loads)
def test_the_oldest_always_gets_on(load: Load) -> None:
    """The oldest sequence that is not held back is part of every step: nothing overtakes it for ever."""
    bench = Bench(slots=load.slots, blocks=load.blocks, is_chunked=load.is_chunked)
    for _, prompt_tokens, max_tokens in load.requests:
        bench.add_one(prompt_tokens, max_tokens)
    while bench.live:
        oldest = min(bench.live)
        assert oldest in {chunk.sequence.request.engine_id for chunk in bench.step()}


def test_decodes_come_first_and_prompts_share_the_rest() -> None:
    """A long prompt takes at most half of what decoding leaves, while shorter ones wait behind it."""
    bench = Bench(step=13, blocks=20)
    running = bench.add_one(2, 20)
    bench.step()
    long, short, shorter = bench.add_one(24, 1), bench.add_one(3, 1), bench.add_one(2, 1)
    rows = {chunk.sequence.request.engine_id: chunk.rows for chunk in bench.step()}
    assert rows == {
        running.request.engine_id: 1,
        long.request.engine_id: 6,
        short.request.engine_id: 3,
        shorter.request.engine_id: 2,
    }


def test_long_prompts_are_computed_in_whole_pieces() -> None:
    """While a prompt goes on its chunks end at multiples of a piece, whatever its neighbours leave."""
    bench = Bench(slots=8, step=200, blocks=200)
    for prompt_tokens in (2, 300, 90, 150):
        bench.add_one(prompt_tokens, 6)
    while bench.live:
        for chunk in bench.step():
            assert chunk.end % PIECE_TOKENS == 0 or chunk.end >= len(chunk.sequence.spec.prompt)


def test_whole_prompts_without_chunking() -> None:
    """Without chunked prefill a prompt is computed in one piece, or waits for the next step."""
    bench = Bench(is_chunked=False)
    bench.add_one(10, 1)
    bench.add_one(10, 1)
    assert [chunk.rows for chunk in bench.step()] == [10]
    assert [chunk.rows for chunk in bench.step()] == [10]


def test_the_paused_give_way_first() -> None:
    """When blocks run out a paused sequence loses its own before any that runs, old as it may be."""
    bench = Bench(blocks=8)
    paused, running = bench.add_one(12, 20), bench.add_one(12, 20)
    bench.step()
    bench.step()
    paused.is_paused = True
    said = paused.output_tokens
    while paused.blocks:
        assert running.request.engine_id in {chunk.sequence.request.engine_id for chunk in bench.step()}
    assert paused.computed_tokens == 0
    assert paused.output_tokens == said > 0
    assert running.blocks


def test_a_step_that_has_no_room_for_a_prompt_is_counted() -> None:
    """Once a step; not the last part of it, not decoding, and not a prompt that fits."""
    bench = Bench(step=12, blocks=16)
    bench.add_one(12, 3)
    bench.run_to_end()
    assert bench.told.bounds == {}
    bench.add_one(30, 3)
    bench.run_to_end()
    assert bench.told.bounds == {Bound.STEP_TOKENS: 2}


def test_the_youngest_gives_way_next() -> None:
    """Among running sequences the youngest is preempted, which is counted; it ends like the others."""
    bench = Bench(blocks=10)
    old, young = bench.add_one(14, 16), bench.add_one(14, 16)
    while young.blocks or not young.output_tokens:
        assert Bound.KV_BLOCKS not in bench.told.bounds
        bench.step()
    assert bench.told.bounds[Bound.KV_BLOCKS] == 1
    assert bench.scheduler.take_preempted() == (young.request.engine_id,)
    assert bench.scheduler.take_preempted() == ()
    assert old in bench.sequences
    said = young.output_tokens
    while bench.live:
        bench.step()
    assert said > 0
    assert bench.ended == [old.request.engine_id, young.request.engine_id]


def test_a_paused_sequence_makes_room_for_a_new_one() -> None:
    """A slow reader's blocks are given to a request that waits; it is computed again when it goes on."""
    bench = Bench(blocks=8)
    slow = bench.add_one(24, 8)
    for _ in range(3):
        bench.step()
    slow.is_paused = True
    bench.add_one(20, 2)
    while len(bench.live) > 1:
        assert bench.step()
    slow.is_paused = False
    while bench.live:
        assert bench.step()
    assert len(bench.ended) == 2


def test_blocks_of_an_unclean_end_are_scrubbed() -> None:
    """Of a sequence that did not end by itself what nobody else can read is zeroed: it may hold anything."""
    bench = Bench()
    sequence = bench.add_one(9, 9)
    bench.step()
    shared, rest = sequence.blocks[:2], sequence.blocks[2:]
    bench.end(sequence.request)
    assert bench.scrubbed == rest
    assert bench.pool.cached_blocks == len(shared) == 2


def test_blocks_of_a_clean_end_are_not_scrubbed() -> None:
    """A token was chosen behind everything in them, so they are finite, and zeroing would cost time."""
    bench = Bench()
    bench.add_one(9, 3)
    bench.run_to_end()
    assert not bench.scrubbed


def test_paused_sequences_keep_blocks_that_would_not_help() -> None:
    """A newcomer that does not fit anyway takes nothing: shared blocks are not counted as won twice."""
    bench = Bench(slots=4, blocks=12, step=40)
    slow = bench.add(tuple(range(17)), 12).sequences[0]
    bench.step()
    slow.is_paused = True
    running = bench.add_one(19, 8)
    bench.step()
    bench.add((*range(16), *range(100, 116)), 1)
    bench.step()
    assert slow.blocks
    assert running.blocks
