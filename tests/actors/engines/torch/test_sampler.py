"""The sampler: a slow reference's tokens, the right distribution, rows that know nothing of each other.

Weights are float32, the reference is float64, so where a uniform or a limit lies within 1e-5 of a border
either side is right: the reference is asked on both sides. A test counts how rare that is.
"""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from actors.engines.torch.cutting import cut_of
from actors.engines.torch.noise import uniform
from actors.engines.torch.sampler import Sampler
from actors.engines.torch.sequence import Request, Sequence
from protocols.spec import GenerationSpec, Sampling, StopRules
from protocols.steps import EngineId

CPU = torch.device("cpu")


def sequence(position: int = 3, *, stop: StopRules | None = None, n: int = 1, **sampling: Any) -> Sequence:
    """A sequence whose next token has this position: the last choice of ``n``."""
    spec = GenerationSpec(
        prompt=(0,) * position, stop=stop or StopRules(max_tokens=9), sampling=Sampling(**sampling), n=n
    )
    return Request(EngineId(1), spec, 0).sequences[-1]


def _fields(sampling: Sampling) -> dict[str, Any]:
    return msgspec.structs.asdict(sampling)


def random_logits(rows: int, width: int, seed: int = 0) -> torch.Tensor:
    return 2.0 * torch.randn(rows, width, generator=torch.Generator().manual_seed(seed))


def kept_weights(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """From the definitions, in float64 and with a full sort: weights ``[vocabulary]``, 0 where not kept.

    Temperature; the top_k largest; of these the fewest that hold top_p of their sum; of these those with
    min_p of the largest. Of equal ones the lower id comes first.
    """
    largest = logits.max().double()
    weights = torch.exp((logits.double() - largest) / sampling.temperature)
    order = sorted(range(len(weights)), key=lambda token: (-weights[token].item(), token))
    if sampling.top_k > 0:
        order = order[: sampling.top_k]
    wanted = sampling.top_p * sum(weights[token].item() for token in order)
    kept, mass = torch.zeros_like(weights), 0.0
    for token in order:
        weight = weights[token].item()
        if (sampling.top_p >= 1.0 or mass < wanted) and weight >= sampling.min_p:
            kept[token] = weight
        mass += weight
    return kept


def pick(weights: torch.Tensor, drawn: float) -> int:
    """The first id at which the sum of the weights, in the order of the ids, exceeds its share."""
    mass = weights.cumsum(0)
    return int((mass <= drawn * mass[-1]).sum())


def right_tokens(logits: torch.Tensor, sampling: Sampling, drawn: float) -> set[int]:
    """What the reference says, also with every number moved by 1e-5."""
    tokens: set[int] = set()
    for change in (-1e-5, 0.0, 1e-5):
        top_p = sampling.top_p if sampling.top_p >= 1.0 else sampling.top_p * (1 + change)
        moved = msgspec.structs.replace(sampling, top_p=top_p, min_p=min(1.0, sampling.min_p * (1 - change)))
        weights = kept_weights(logits, moved)
        tokens |= {pick(weights, min(max(drawn + step, 0.0), 1 - 1e-12)) for step in (-1e-5, 0.0, 1e-5)}
    return tokens


DISTRIBUTIONS = [
    Sampling(temperature=1.0),
    Sampling(temperature=0.3),
    Sampling(temperature=1.0, top_k=5),
    Sampling(temperature=1.5, top_p=0.7),
    Sampling(temperature=1.0, top_k=20, top_p=0.5),
    Sampling(temperature=2.0, top_p=0.999),
    Sampling(temperature=1.0, min_p=0.1),
    Sampling(temperature=1.0, top_k=30, top_p=0.9, min_p=0.05),
]


@pytest.mark.parametrize("sampling", DISTRIBUTIONS, ids=str)
@pytest.mark.parametrize("width", [40, 600])
def test_it_draws_from_the_right_distribution(sampling: Sampling, width: int) -> None:
    """Over 4,000 positions each id comes up as often as it should, within five sigma."""
    logits = random_logits(1, width)[0]
    draws = 4_000
    sampler = Sampler(draws, width, CPU)
    options = {name: getattr(sampling, name) for name in ("temperature", "top_k", "top_p", "min_p")}
    rows = [sequence(1 + position, seed=11, **options) for position in range(draws)]
    chosen = sampler.choose(logits.repeat(draws, 1), rows)
    counts = torch.bincount(torch.tensor(chosen), minlength=width).double()
    weights = kept_weights(logits, sampling)
    wanted = draws * weights / weights.sum()
    assert torch.all(counts[wanted == 0] == 0)
    assert torch.all((counts - wanted).abs() <= 5 * wanted.sqrt() + 5)


def random_sampling(random: Random) -> Sampling:
    """Any mixture of options, also with values at which nothing is left out."""
    return Sampling(
        temperature=random.choice([0.05, 0.7, 1.0, 1.3, 4.0]),
        top_k=random.choice([0, 0, 1, 2, 17, 600, 1023, 1024, 1500, 9_999]),
        top_p=random.choice([1.0, 1.0, 0.01, 0.4, 0.9, 0.999, random.random()]),
        min_p=random.choice([0.0, 0.0, 0.02, 0.5, 1.0, random.random()]),
        seed=random.getrandbits(70) - 2**69,
    )


@pytest.mark.parametrize("width", [3, 257, 1_500])
def test_the_token_is_the_one_of_the_reference(width: int) -> None:
    """400 rows in batches of 8, each with options of its own: the reference's token; a border is rare."""
    random = Random(width)
    sampler = Sampler(8, width, CPU)
    on_a_border = 0
    for batch in range(50):
        logits = 2.0 * random_logits(8, width, seed=batch)
        # Equal logits are common in a quantised model.
        logits[batch % 8] = logits[batch % 8].round()
        rows = [sequence(random.randint(1, 50), n=2, **_fields(random_sampling(random))) for _ in range(8)]
        chosen = sampler.choose(logits.clone(), rows)
        for row, token in zip(rows, chosen, strict=True):
            sampling = row.spec.sampling
            drawn = uniform(sampling.seed, row.index, len(row.tokens))
            right = right_tokens(logits[rows.index(row)], sampling, drawn)
            assert token in right, sampling
            on_a_border += len(right) > 1
    assert on_a_border <= 4


numbers = st.integers(0, 40)


@given(
    weights=st.lists(numbers, min_size=1, max_size=30).filter(any),
    copies=st.sampled_from([1, 90]),
    top_k=st.integers(0, 40),
    parts=st.integers(1, 64),
)
def test_a_cut_keeps_what_the_definition_keeps(
    weights: list[int], copies: int, top_k: int, parts: int
) -> None:
    """Also where weights are equal or a sum ends exactly on the border: the same ids, to the last one.

    Weights are whole numbers and top_p is n / 64, so that float sums are exact.
    """
    row = np.array(weights * copies, dtype=np.float32)
    top_k, top_p = min(top_k * copies, len(row) - 1), parts / 64
    cut = cut_of(row, float(row.sum(dtype=np.float64)), top_k, top_p)
    order = sorted(range(len(row)), key=lambda token: (-row[token], token))[: top_k or None]
    wanted, mass = top_p * sum(float(row[token]) for token in order), 0.0
    expected = set()
    for token in order:
        if mass < wanted and row[token] > 0:
            expected.add(token)
        mass += float(row[token])
    kept = [token for token in range(len(row)) if row[token] >= cut.least and row[token] > 0]
    equals = [token for token in kept if row[token] == cut.least]
    left_out = set(equals[cut.equals :]) if cut.equals is not None else set()
    assert set(kept) - left_out == expected


@given(
    others=st.lists(
        st.builds(
            dict,
            temperature=st.sampled_from([0.0, 0.5, 1.0, 3.0]),
            top_k=st.sampled_from([0, 1, 3, 300, 9_999]),
            top_p=st.sampled_from([0.1, 0.9, 1.0]),
            min_p=st.sampled_from([0.0, 0.3]),
            seed=st.integers(0, 9),
        ),
        max_size=6,
    ),
    place=st.integers(0, 6),
)
@pytest.mark.parametrize(
    "options", [{}, {"top_k": 7}, {"top_p": 0.8}, {"top_p": 0.9999}, {"min_p": 0.1}], ids=str
)
def test_neighbours_change_nothing(options: dict[str, Any], others: list[dict[str, Any]], place: int) -> None:
    """A row gets the same id alone and in any company, wherever it stands and whatever it held before."""
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


@pytest.mark.parametrize("temperature", [1e-300, 1e-40, 1e-9])
def test_a_temperature_that_is_nearly_zero_is_greedy(temperature: float) -> None:
    """Also one that float32 cannot hold: the largest logit is drawn, whatever the uniform."""
    logits = random_logits(1, 300)
    for position in range(1, 9):
        row = sequence(position, temperature=temperature, top_p=0.9)
        assert Sampler(1, 300, CPU).choose(logits.clone(), [row]) == [int(logits.argmax())]


def test_the_choices_of_a_request_draw_differently() -> None:
    """The same seed, position and logits: another choice has another uniform."""
    logits = torch.zeros(1, 500)
    spec = GenerationSpec(
        prompt=(1, 2), stop=StopRules(max_tokens=3), sampling=Sampling(temperature=1.0, seed=4), n=8
    )
    rows = Request(EngineId(1), spec, 0).sequences
    assert len(set(Sampler(8, 500, CPU).choose(logits.repeat(8, 1), rows))) > 4


def test_a_banned_stop_id_is_never_drawn() -> None:
    """min_tokens comes before temperature and top-k: what is left shares the whole of the mass."""
    logits = torch.zeros(1, 3)
    logits[0, 1] = 30.0
    rules = StopRules(max_tokens=9, min_tokens=1, stop_token_ids=frozenset({1}))
    sampler = Sampler(1, 3, CPU)
    rows = [sequence(position, stop=rules, temperature=1.0, top_k=2) for position in range(1, 40)]
    assert {sampler.choose(logits.clone(), [row])[0] for row in rows} == {0, 2}
