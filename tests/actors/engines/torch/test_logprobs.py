"""Logprobs: those of a plain forward pass, each beside its own token, however the work is cut up."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from actors.engines.torch.inbox import CommandInbox
from actors.engines.torch.logprobs import positions_of
from actors.engines.torch.scheduler import Scheduler
from protocols.spec import GenerationSpec, Output, Sampling, StopRules
from tests.actors.engines.torch import tiny_models
from tests.actors.engines.torch.told import Told

if TYPE_CHECKING:
    from actors.engines.torch.inbox import Command
    from actors.engines.torch.scheduler import Chunk
    from actors.engines.torch.sequence import Sequence
    from tests.actors.engines.torch.conftest import Opener

TOKENS = 7
# A prompt has one row, less than a piece, a piece, one more, several pieces.
LENGTHS = (1, 5, 64, 65, 150, 130)


@given(
    logits=st.lists(
        st.one_of(st.integers(-9, 9).map(float), st.just(float("-inf"))), min_size=1, max_size=40
    ).filter(lambda row: max(row) > float("-inf")),
    count=st.integers(0, 20),
    place=st.integers(0, 39),
)
def test_ranks_and_rivals_are_those_of_a_full_sort(logits: list[float], count: int, place: int) -> None:
    """The token first, then the most likely others; equals by id and of equal rank; nothing impossible."""
    row, token = torch.tensor(logits), place % len(logits)
    ((first, *rivals),) = positions_of([row], [token], [count])
    logprobs = torch.log_softmax(row.double(), dim=-1).tolist()
    rank = [1 + sum(other > logit for other in logits) for logit in logits]
    order = sorted(range(len(logits)), key=lambda candidate: (-logits[candidate], candidate))[:count]
    expected = [other for other in order if other != token and logits[other] > float("-inf")]
    assert first.token_id == token
    assert [rival.token_id for rival in rivals] == expected
    for candidate in (first, *rivals):
        assert candidate.rank == rank[candidate.token_id]
        assert candidate.logprob == pytest.approx(max(logprobs[candidate.token_id], -9999.0), abs=1e-5)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_row_that_is_not_finite_tells_nothing(bad: float) -> None:
    """Its position is empty, its neighbours' are as ever."""
    rows = torch.zeros(2, 9)
    rows[0, 4] = bad
    empty, (known, *rivals) = positions_of(rows, [1, 2], [3, 3])
    assert empty == []
    assert (known.token_id, len(rivals)) == (2, 2)


def test_a_large_row_keeps_its_precision() -> None:
    """Among 200,000 logits of any size the logprob is within 1e-5 of float64."""
    row = 30.0 * torch.randn(200_000, generator=torch.Generator().manual_seed(3))
    wanted = torch.log_softmax(row.double(), dim=-1)
    ((first, *_),) = positions_of([row], [777], [0])
    assert first.logprob == pytest.approx(wanted[777].item(), abs=1e-5)


def spec(prompt: tuple[int, ...], number: int, **fields: Any) -> GenerationSpec:
    """Sampled and penalised: what is told must not know of that."""
    counts = (None, 0, 1, 2, 5, 20)
    return GenerationSpec(
        prompt=prompt,
        stop=StopRules(max_tokens=TOKENS),
        sampling=Sampling(
            temperature=0.4, top_p=0.8, seed=number, repetition_penalty=1.5, frequency_penalty=1.0
        ),
        output=Output(logprobs=counts[number % 6], prompt_logprobs=counts[(number * 5 + 2) % 6]),
        **fields,
    )


WAYS: dict[str, dict[str, Any]] = {
    "one batch": {},
    "small steps": {"step_tokens": 11},
    "few slots": {"max_num_seqs": 2},
    "small pool": {"kv_pool_tokens": 184, "max_seq_len": 184},
    "no chunking": {"step_tokens": 160, "is_chunked_prefill": False},
}


@pytest.mark.anyio
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["llama", "gemma2", "gpt_oss"])
async def test_they_are_those_of_a_plain_forward_pass(kind: str, way: str, open_engine: Opener) -> None:
    """Of output and prompt, several long prompts at once, every count: within 1e-4, and not shifted."""
    model = tiny_models.make_model(kind)
    async with open_engine(kind, **WAYS[way]) as reader:
        told = Told(reader)
        heard = [
            reader.submit(spec(prompt, number))
            for number, prompt in enumerate(tiny_models.prompts((*LENGTHS, 64, 150, 5, 70)))
        ]
        await told.read_to_end(*heard)
    for request in heard:
        told.check(model, request, 1e-4)


@pytest.mark.anyio
async def test_choices_have_logprobs_of_their_own(open_engine: Opener) -> None:
    """n = 3: each choice is told about its own tokens, the prompt once."""
    model = tiny_models.make_model("llama")
    async with open_engine() as reader:
        told = Told(reader)
        heard = [
            reader.submit(spec(prompt, 4, n=3, cache_salt=str(prompt)))
            for prompt in tiny_models.prompts((70, 9))
        ]
        await told.read_to_end(*heard)
    for request in heard:
        assert len({tuple(tokens) for tokens in request.token_ids}) > 1
        told.check(model, request, 1e-4)


@pytest.mark.anyio
async def test_a_prefix_hit_changes_no_logprob(open_engine: Opener) -> None:
    """The second equal prompt is read from the cache, and says the same to the last bit."""
    model = tiny_models.make_model("llama")
    (prompt,) = tiny_models.prompts((90,))
    request = GenerationSpec(prompt=prompt, stop=StopRules(max_tokens=TOKENS), output=Output(logprobs=5))
    async with open_engine() as reader:
        told = Told(reader)
        first = reader.submit(request)
        await told.read_to_end(first)
        second = reader.submit(request)
        await told.read_to_end(second)
    assert (first.cached_tokens, second.cached_tokens) == (0, 88)
    told.check(model, second, 1e-4)
    assert told.output[first.engine_id] == told.output[second.engine_id]


@pytest.mark.anyio
async def test_whoever_asks_about_the_prompt_reads_no_cache(open_engine: Opener) -> None:
    """What is in the cache has no logits: the prompt is computed again, and complete."""
    model = tiny_models.make_model("llama")
    (prompt,) = tiny_models.prompts((90,))
    async with open_engine() as reader:
        told = Told(reader)
        await reader.complete(GenerationSpec(prompt=prompt, stop=StopRules(max_tokens=2)))
        asking = reader.submit(spec(prompt, 4))
        await told.read_to_end(asking)
    assert asking.cached_tokens == 0
    told.check(model, asking, 1e-4)


@pytest.mark.anyio
async def test_a_prompt_that_is_preempted_in_the_middle_is_told_once(
    open_engine: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paused after its first piece and driven out by another: afterwards complete, and right."""
    computed: list[int] = []
    preempt, plan, take = Scheduler._preempt, Scheduler.plan, CommandInbox.take
    has_planned, is_paused = threading.Event(), threading.Event()

    def watched(self: Scheduler, sequence: Sequence) -> None:
        computed.append(sequence.computed_tokens)
        preempt(self, sequence)

    def noted(self: Scheduler) -> list[Chunk]:
        chunks = plan(self)
        if chunks:
            has_planned.set()
        return chunks

    def late(self: CommandInbox, *, is_waiting: bool, timeout_s: float | None) -> list[Command]:
        # The engine's thread would have gone on to the second piece.
        if has_planned.is_set():
            assert is_paused.wait(10)
        return take(self, is_waiting=is_waiting, timeout_s=timeout_s)

    monkeypatch.setattr(Scheduler, "_preempt", watched)
    monkeypatch.setattr(Scheduler, "plan", noted)
    monkeypatch.setattr(CommandInbox, "take", late)
    model = tiny_models.make_model("llama")
    long, other = tiny_models.prompts((150, 130))
    async with open_engine(kv_pool_tokens=200, max_seq_len=200) as reader:
        told = Told(reader)
        asking = reader.submit(spec(long, 5))
        await told.read_step()
        reader.engine.pause(asking.engine_id)
        is_paused.set()
        beside = reader.submit(spec(other, 4))
        await told.read_to_end(beside)
        reader.engine.resume(asking.engine_id)
        await told.read_to_end(asking)
    assert computed
    assert 0 < computed[0] < len(long)
    told.check(model, asking, 1e-4)
    told.check(model, beside, 1e-4)
