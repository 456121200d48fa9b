"""Penalties: what the definitions say, as a function of the tokens alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

from actors.engines.torch.penalties import Penalties
from protocols.spec import GenerationSpec, Sampling, StopRules
from tests.actors.engines.torch import tiny_models

if TYPE_CHECKING:
    from tests.actors.engines.torch.conftest import Opener

WIDTH = 12
CPU = torch.device("cpu")

tokens = st.lists(st.integers(0, WIDTH - 1), max_size=40)
samplings = st.builds(
    Sampling,
    repetition_penalty=st.sampled_from([1.0, 0.5, 1.3, 2.0]),
    presence_penalty=st.sampled_from([0.0, -2.0, 0.7]),
    frequency_penalty=st.sampled_from([0.0, -1.1, 0.4]),
)


def logits(seed: int = 0) -> torch.Tensor:
    row = 3.0 * torch.randn(WIDTH, generator=torch.Generator().manual_seed(seed))
    # The borders of the definition: nothing, and an id that is ruled out already.
    row[3], row[7] = 0.0, float("-inf")
    return row


def penalised(row: torch.Tensor, sampling: Sampling, prompt: list[int], output: list[int]) -> list[float]:
    """From the definitions, id by id."""

    def changed(token: int, logit: float) -> float:
        if token in prompt or token in output:
            logit = logit / sampling.repetition_penalty if logit > 0 else logit * sampling.repetition_penalty
        times = output.count(token)
        return logit - sampling.frequency_penalty * times - (sampling.presence_penalty if times else 0.0)

    return [changed(token, logit) for token, logit in enumerate(row.tolist())]


@given(sampling=samplings, prompt=tokens, output=tokens)
def test_logits_are_those_of_the_definition(sampling: Sampling, prompt: list[int], output: list[int]) -> None:
    """Repetition over prompt and output, frequency and presence over the output; after every token."""
    penalties = Penalties(sampling, prompt, CPU)
    for count in range(len(output) + 1):
        if count:
            penalties.note(output[count - 1])
        row = logits(count)
        wanted = penalised(row, sampling, prompt, output[:count])
        penalties.apply(row)
        assert row.tolist() == pytest.approx(wanted, abs=1e-5)


@given(prompt=tokens.filter(bool), penalty=st.sampled_from([0.5, 1.0, 1.2, 5.0]))
def test_repetition_is_that_of_transformers(prompt: list[int], penalty: float) -> None:
    """The same numbers as transformers' own processor, also for ids that occur several times."""
    row = logits()
    processor: Any = transformers.RepetitionPenaltyLogitsProcessor(penalty)
    wanted = processor(torch.tensor([prompt]), row.unsqueeze(0).clone())[0]
    Penalties(Sampling(repetition_penalty=penalty), prompt, CPU).apply(row)
    assert row.equal(wanted)


@given(sampling=samplings)
def test_they_are_made_where_they_change_something(sampling: Sampling) -> None:
    """Neutral values, and only those, need no state."""
    assert Penalties.needed(sampling) == (penalised(logits(), sampling, [0], [0]) != logits().tolist())


PENALISED = Sampling(repetition_penalty=1.4, presence_penalty=1.0, frequency_penalty=0.6)


def reference(prompt: tuple[int, ...], count: int) -> list[int]:
    """Greedy under penalties, by a plain forward pass over everything for each token."""
    model = tiny_models.make_model("llama")
    output: list[int] = []
    with torch.inference_mode():
        for _ in range(count):
            row = model(input_ids=torch.tensor([[*prompt, *output]])).logits[0, -1]
            found = penalised(row, PENALISED, list(prompt), output)
            output.append(max(range(len(found)), key=found.__getitem__))
    return output


@pytest.mark.anyio
@pytest.mark.parametrize("way", [{}, {"kv_pool_tokens": 72, "max_seq_len": 72}, {"step_tokens": 11}], ids=str)
async def test_the_engine_penalises_as_the_definition(way: dict[str, Any], open_engine: Opener) -> None:
    """Six requests beside each other, in chunks and after preemption: token by token the reference's."""
    prompts = tiny_models.prompts()
    async with open_engine(**way) as reader:
        heard = [
            reader.submit(
                GenerationSpec(prompt=prompt, stop=StopRules(max_tokens=24), sampling=PENALISED, n=2)
            )
            for prompt in prompts
        ]
        await reader.read_to_end(*heard)
    for request, prompt in zip(heard, prompts, strict=True):
        wanted = reference(prompt, 24)
        assert request.token_ids == [wanted, wanted]
