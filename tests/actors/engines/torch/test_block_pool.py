"""Blocks by content under everything that can happen to requests: no leak, no wrong hit, true events."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from actors.engines.torch.prefix_cache import Root, content_hash
from protocols.bounds import Bound
from tests.actors.engines.torch.bookkeeping import BLOCK, Bench

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.engines.torch.sequence import Request, Sequence

LONGEST = 8 * BLOCK
# Two tokens only, so that prompts, and what is generated, meet again and again.
TRUNKS = tuple(tuple((seed >> (i % 5)) & 1 for i in range(LONGEST)) for seed in (0b00000, 0b10110, 0b01001))


def colliding(parent: int | None, root: Root, tokens: tuple[int, ...]) -> int:
    """Three hashes for everything."""
    return content_hash(parent, root, tokens) % 3


def some_collisions(parent: int | None, root: Root, tokens: tuple[int, ...]) -> int:
    """Neither the salt nor the parents matter, and only half of the tokens do."""
    return content_hash(None, Root(), tokens[::2])


# Chooses one of the live requests, or tokens, by remainder.
numbers = st.integers(0, 11)
prompts = st.builds(
    lambda trunk, length, own: (TRUNKS[trunk][:length] + own)[: LONGEST - 6],
    st.integers(0, 2),
    st.integers(1, LONGEST - 8),
    st.lists(st.integers(0, 1), max_size=6).map(tuple),
)
adds = st.tuples(
    st.just("add"), prompts, st.integers(1, 6), st.integers(1, 3), st.sampled_from([None, "", "a"])
)
scores = st.tuples(st.just("add with prompt logprobs"), prompts, st.integers(1, 4), st.integers(1, 2))
words = st.tuples(st.sampled_from(["abort", "pause", "resume"]), numbers)
steps = st.tuples(st.sampled_from(["step", "late step"]), st.integers(1, 5))
stories = st.lists(st.one_of(adds, adds, scores, words, steps, steps), max_size=40)


def act(bench: Bench, action: tuple[object, ...]) -> None:
    match action:
        case ("add", prompt, tokens, n, salt):
            bench.add(prompt, tokens, n=n, cache_salt=salt)  # type: ignore[arg-type]
        case ("add with prompt logprobs", prompt, tokens, n):
            bench.add_with_prompt_logprobs(prompt, tokens, n)  # type: ignore[arg-type]
        case ("step" | "late step" as kind, count):
            chance = cycle([True, False, False])
            for _ in range(count):  # type: ignore[call-overload]
                bench.step(lambda _: kind == "late step" and next(chance))
        case (word, number):
            request = chosen(bench, number)  # type: ignore[arg-type]
            if request is not None and word == "abort":
                bench.end(request)
            elif request is not None:
                for sequence in request.sequences:
                    sequence.is_paused = word == "pause"
            bench.hear()
        case _:
            raise AssertionError(action)


def chosen(bench: Bench, number: int) -> Request | None:
    live = list(bench.live.values())
    return live[number % len(live)] if live else None


def tell(story: list[tuple[object, ...]], blocks: int, slots: int, hash_of: Callable[..., int]) -> Bench:
    """Live through a story to the end of all its requests; the bench looks at every step."""
    bench = Bench(slots=slots, step=slots + 9, blocks=blocks, hash_of=hash_of, choose=next_token)
    for action in story:
        act(bench, action)
    for sequence in bench.sequences:
        sequence.is_paused = False
    for _ in range(2_000):
        if not bench.live:
            break
        assert bench.step() or bench.late or bench.step(), "a step with live sequences computes something"
    assert not bench.live
    assert bench.pool.used_blocks == 0
    return bench


def next_token(sequence: Sequence) -> int:
    """What is generated depends on what is there, and goes on like a prompt that others have."""
    return TRUNKS[1][len(sequence.tokens) % LONGEST] ^ (sequence.index & 1)


@settings(max_examples=300)
@given(
    story=stories,
    blocks=st.integers(8, 20),
    slots=st.integers(1, 6),
    hash_of=st.sampled_from([content_hash, content_hash, some_collisions, colliding]),
)
def test_no_leak_and_no_wrong_hit(
    story: list[tuple[object, ...]], blocks: int, slots: int, hash_of: Callable[..., int]
) -> None:
    """Whatever happens in whatever order, each sequence reads its own text, and in the end all is free.

    Requests with shared beginnings, salts, choices and prompt logprobs come, are held back, late,
    preempted and aborted; also with hashes that collide. The bench compares every slot with the whole
    text in front of it, and what a listener to the events knows with what is known.
    """
    tell(story, blocks, slots, hash_of)


@given(story=stories, blocks=st.integers(8, 20), slots=st.integers(1, 6))
def test_cached_tokens_are_those_that_were_not_computed(
    story: list[tuple[object, ...]], blocks: int, slots: int
) -> None:
    """What a request says about its prompt is exact, also after it had to begin again."""
    bench = tell(story, blocks, slots, content_hash)
    for sequence, positions in bench.computed.items():
        told = bench.told_cached.get(sequence.request.engine_id)
        if sequence.index == 0 and told is not None:
            prompt = range(len(sequence.spec.prompt))
            assert told == len(set(prompt).difference(bench.first_computed[sequence]))
        if sequence.index == 0 and sequence.spec.output.prompt_logprobs is not None and positions:
            assert told in (0, None), "logits of a prompt that is not computed do not exist"


def test_every_kept_block_that_goes_is_counted() -> None:
    """One by one as somebody needs them; while there are free ones nothing goes."""
    bench = Bench(step=8 * BLOCK, blocks=8)
    bench.add_one(4 * BLOCK, 1)
    bench.run_to_end()
    bench.add_one(4 * BLOCK - 1, 1)
    bench.run_to_end()
    kept, free = bench.pool.cached_blocks, bench.pool.available_blocks - bench.pool.cached_blocks
    assert bench.told.bounds == {}
    assert kept == 7
    bench.add_one(4 * BLOCK - 1, 1)
    bench.run_to_end()
    assert bench.told.bounds == {Bound.KV_CACHE: 4 - free}


def test_another_salt_finds_nothing() -> None:
    """The same prompt is shared under the same salt only; none and an empty one differ, too."""
    bench = Bench(slots=6, step=200, blocks=64)
    prompt = tuple(range(17))
    for salt in (None, "", "a", "b", "a", None):
        bench.add(prompt, 1, cache_salt=salt)
        bench.run_to_end()
    assert list(bench.told_cached.values()) == [0, 0, 0, 0, 16, 16]


def test_the_last_token_of_a_prompt_is_always_computed() -> None:
    """A prompt of whole blocks that is known entirely leaves its last block to be computed again."""
    bench = Bench(step=200, blocks=64)
    for _ in range(2):
        bench.add(tuple(range(4 * BLOCK)), 1)
        bench.run_to_end()
    assert list(bench.told_cached.values()) == [0, 3 * BLOCK]
    assert bench.pool.cached_blocks == 4


def test_a_prompt_that_goes_on_from_an_answer_finds_it() -> None:
    """The next turn of a chat reuses the blocks of the turn before it, the generated ones included."""
    bench = Bench(step=200, blocks=64, choose=lambda _: 7)
    bench.add(tuple(range(10)), 11)
    bench.run_to_end()
    bench.add((*range(10), *[7] * 11, 1, 2), 1)
    bench.run_to_end()
    assert bench.told_cached[1] == 20


def test_equal_prompts_at_once_end_up_in_one_copy() -> None:
    """Computed side by side, equal blocks are kept once as soon as both are known."""
    bench = Bench(step=200, blocks=64)
    first, second = (bench.add(tuple(range(16)), 4).sequences[0] for _ in range(2))
    bench.step()
    assert first.blocks[:4] == second.blocks[:4]
    assert bench.pool.used_blocks == 4
    bench.run_to_end()


def test_an_answer_never_gets_the_bits_of_somebodys_prompt() -> None:
    """Generated text that another prompt contains stays computed token by token, also after preemption."""
    bench = Bench(slots=4, step=200, blocks=9, choose=lambda _: 7)
    bench.add((*range(6), *[7] * 12), 1)
    bench.run_to_end()
    (answer,) = bench.add(tuple(range(6)), 12).sequences
    for _ in range(8):
        bench.step()
    paused, answer.is_paused = answer, True
    while paused.blocks:
        bench.add_one(20, 8)
        bench.step()
    paused.is_paused = False
    bench.run_to_end()
    assert set(bench.computed[answer]) == set(range(4, 17))


def test_what_was_computed_and_lost_is_not_called_cached() -> None:
    """A prompt that began, gave way and was then computed by another one tells only what it was spared."""
    bench = Bench(step=13, blocks=8)
    prompt = tuple(range(24))
    (slow,) = bench.add(prompt, 1).sequences
    bench.step()
    assert slow.computed_tokens == 13
    slow.is_paused = True
    bench.add(prompt, 1)
    while len(bench.live) > 1:
        bench.step()
    slow.is_paused = False
    bench.run_to_end()
    assert bench.told_cached == {1: 0, 0: 20 - 13}
