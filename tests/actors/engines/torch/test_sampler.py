"""The sampler: it draws from the right distribution, and rows know nothing of each other."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from actors.engines.torch.sampler import Sampler
from actors.engines.torch.sequence import Request, Sequence
from protocols.spec import GenerationSpec, Sampling, StopRules
from protocols.steps import EngineId

CPU = torch.device("cpu")


def sequence(position: int = 3, *, stop: StopRules | None = None, **sampling: Any) -> Sequence:
    """A sequence whose next token has this position."""
    spec = GenerationSpec(
        prompt=(0,) * position, stop=stop or StopRules(max_tokens=9), sampling=Sampling(**sampling)
    )
    return Request(EngineId(1), spec, 0).sequences[0]


def random_logits(rows: int, width: int, seed: int = 0) -> torch.Tensor:
    return 2.0 * torch.randn(rows, width, generator=torch.Generator().manual_seed(seed))


def expected_probabilities(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """The distribution as written down: temperature, top-k, then top-p of what is left."""
    p = torch.softmax(logits.double() / sampling.temperature, dim=-1)
    order = p.argsort(descending=True)
    if sampling.top_k:
        p[order[sampling.top_k :]] = 0.0
        p /= p.sum()
    before = p[order].cumsum(0) - p[order]
    p[order[before >= sampling.top_p]] = 0.0
    return p / p.sum()


DISTRIBUTIONS = [
    Sampling(temperature=1.0),
    Sampling(temperature=0.3),
    Sampling(temperature=1.0, top_k=5),
    Sampling(temperature=1.5, top_p=0.7),
    Sampling(temperature=1.0, top_k=20, top_p=0.5),
    Sampling(temperature=2.0, top_p=0.999),
]


@pytest.mark.parametrize("sampling", DISTRIBUTIONS, ids=str)
@pytest.mark.parametrize("width", [40, 600])
def test_it_draws_from_the_right_distribution(sampling: Sampling, width: int) -> None:
    """Over 4,000 positions each id comes up as often as it should, within five sigma."""
    logits = random_logits(1, width)[0]
    draws = 4_000
    sampler = Sampler(draws, width, CPU)
    options = {name: getattr(sampling, name) for name in ("temperature", "top_k", "top_p")}
    rows = [sequence(1 + position, seed=11, **options) for position in range(draws)]
    chosen = sampler.choose(logits.repeat(draws, 1), rows)
    counts = torch.bincount(torch.tensor(chosen), minlength=width).double()
    wanted = draws * expected_probabilities(logits, sampling)
    assert torch.all(counts[wanted == 0] == 0)
    assert torch.all((counts - wanted).abs() <= 5 * wanted.sqrt() + 5)


@given(
    others=st.lists(
        st.builds(
            dict,
            temperature=st.sampled_from([0.0, 0.5, 1.0, 3.0]),
            top_k=st.sampled_from([0, 1, 3, 300, 9_999]),
            top_p=st.sampled_from([0.1, 0.9, 1.0]),
            seed=st.integers(0, 9),
        ),
        max_size=6,
    ),
    place=st.integers(0, 6),
)
@pytest.mark.parametrize("options", [{}, {"top_k": 7}, {"top_p": 0.8}, {"top_p": 0.9999}], ids=str)
def test_neighbours_change_nothing(options: dict[str, Any], others: list[dict[str, Any]], place: int) -> None:
    """A row gets the same id alone and in any company, wherever it stands."""
    width, place = 700, min(place, len(others))
    logits = random_logits(len(others) + 1, width)
    sampler = Sampler(8, width, CPU)
    mine = sequence(temperature=1.0, seed=3, **options)
    rows = [sequence(**other) for other in others]
    rows.insert(place, mine)
    alone = sampler.choose(logits[place : place + 1].clone(), [mine])
    assert sampler.choose(logits, rows)[place] == alone[0]


def test_greedy_takes_the_largest() -> None:
    """Temperature 0 and top_k 1 take the largest logit, whatever the seed."""
    logits = random_logits(3, 50)
    best = logits.argmax(dim=-1).tolist()
    rows = [sequence(), sequence(temperature=1.0, top_k=1, seed=1), sequence(temperature=1e-6, seed=2)]
    assert Sampler(3, 50, CPU).choose(logits, rows) == best


def test_stop_ids_are_masked_until_min_tokens() -> None:
    """Before min_tokens the best id is passed over when it would stop; ids out of range do no harm."""
    logits = random_logits(1, 50)
    best, second = logits[0].topk(2).indices.tolist()
    rules = StopRules(max_tokens=9, min_tokens=1, eos_token_ids=frozenset({best, 70}))
    assert Sampler(1, 50, CPU).choose(logits, [sequence(stop=rules)]) == [second]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("options", [{}, {"temperature": 1.0}, {"temperature": 1.0, "top_p": 0.5}], ids=str)
def test_a_row_that_is_not_finite_fails_alone(bad: float, options: dict[str, Any]) -> None:
    """A NaN or infinite logit gives no token for its row and the usual one for its neighbours."""
    logits = random_logits(3, 50)
    rows = [sequence(**options) for _ in range(3)]
    sampler = Sampler(3, 50, CPU)
    fine = sampler.choose(logits.clone(), rows)
    logits[1, 17] = bad
    assert sampler.choose(logits, rows) == [fine[0], None, fine[2]]


def test_minus_infinity_is_only_impossible() -> None:
    """Ids that the model rules out itself are never drawn, and harm nothing."""
    logits = torch.full((1, 300), float("-inf"))
    logits[0, [5, 299]] = 0.0
    sampler = Sampler(1, 300, CPU)
    drawn = {
        sampler.choose(logits.clone(), [sequence(position, temperature=1.0)])[0] for position in range(1, 40)
    }
    assert drawn == {5, 299}
