"""One uniform per token, from seed, choice and position alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from actors.engines.torch.noise import uniform

seeds = st.integers(-(2**70), 2**70)
small = st.integers(0, 2**20)


@given(seed=seeds, choice=small, position=small)
def test_it_is_a_function_into_the_unit_interval(seed: int, choice: int, position: int) -> None:
    """Any seed gives a number in [0, 1), the same one each time."""
    drawn = uniform(seed, choice, position)
    assert 0.0 <= drawn < 1.0
    assert drawn == uniform(seed, choice, position)


@given(seed=seeds)
def test_neighbours_differ(seed: int) -> None:
    """Next position, next choice and next seed draw something else."""
    drawn = {uniform(seed + a, b, c) for a in range(2) for b in range(2) for c in range(2)}
    assert len(drawn) == 8


def test_it_is_uniform() -> None:
    """Over 20,000 positions every tenth of the interval gets its share, within five sigma."""
    counts = [0] * 10
    for position in range(20_000):
        counts[int(10 * uniform(1, 0, position))] += 1
    assert all(abs(count - 2_000) < 5 * (20_000 * 0.1 * 0.9) ** 0.5 for count in counts)
