"""Choices that are the best of more: asked for within what the engine can follow, or refused by name."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.choice_search import choice_search
from protocols.engine import NEVER, EngineCapabilities
from protocols.errors import InvalidRequest
from protocols.requests import SamplingOptions
from protocols.spec import Search, Stage
from tests.actors.judges import ALL_SAMPLING, resolve, rules

BEAMS = EngineCapabilities(max_beams=4, max_best_of=6)


def searched(n: int = 1, can: EngineCapabilities = BEAMS, capacity: int = 8, **options: Any) -> Search | None:
    """What becomes of the options of one request."""
    return choice_search(SamplingOptions(n=n, **options), n, "double", can, capacity)


def refusal(n: int = 1, can: EngineCapabilities = BEAMS, capacity: int = 8, **options: Any) -> InvalidRequest:
    """Why it is not served."""
    with pytest.raises(InvalidRequest) as refused:
        searched(n, can, capacity, **options)
    return refused.value


class TestSamples:
    @pytest.mark.parametrize(("n", "best_of"), [(1, None), (1, 1), (3, None), (3, 3)])
    def test_as_many_as_are_returned_is_no_search(self, n: int, best_of: int | None) -> None:
        """They can be told token by token."""
        assert searched(n, best_of=best_of) is None

    def test_more_than_are_returned_is_one(self) -> None:
        """The engine follows them all."""
        assert searched(2, best_of=6) == Search(width=6)

    @pytest.mark.parametrize(("n", "best_of"), [(2, 1), (2, 0), (1, -1), (1, 7)])
    def test_fewer_than_are_returned_or_more_than_can_be_followed(self, n: int, best_of: int) -> None:
        """Refused with what would do."""
        error = refusal(n, best_of=best_of)
        assert (error.field, error.value) == ("sampling_options.best_of", best_of)
        assert f"({n}) to 6" in error.allowed

    def test_the_engines_places_are_a_limit_too(self) -> None:
        """A request that never fits would wait for ever."""
        assert searched(1, capacity=5, best_of=5) == Search(width=5)
        assert refusal(1, capacity=5, best_of=6).field == "sampling_options.best_of"

    def test_an_engine_that_ranks_none(self) -> None:
        """Every choice that it makes is returned."""
        error = refusal(2, EngineCapabilities(), best_of=3)
        assert error.allowed == "the value of n (2), or nothing"

    @pytest.mark.parametrize(
        ("can", "said"), [(BEAMS, "without use_beam_search"), (EngineCapabilities(), "'double'")]
    )
    def test_a_length_penalty_is_for_beams(self, can: EngineCapabilities, said: str) -> None:
        """Samples are ranked by their probability alone."""
        error = refusal(1, can, length_penalty=1.0)
        assert error.field == "sampling_options.length_penalty"
        assert said in error.allowed


class TestBeams:
    @pytest.mark.parametrize(
        ("n", "best_of", "width"), [(1, None, 1), (2, None, 2), (1, 4, 4), (4, 4, 4), (2, 3, 3)]
    )
    def test_as_many_beams_as_are_asked_for(self, n: int, best_of: int | None, width: int) -> None:
        """The best n of best_of, else of n."""
        assert searched(n, use_beam_search=True, best_of=best_of) == Search(width=width, is_beam=True)

    @pytest.mark.parametrize(("n", "best_of"), [(2, 1), (1, 5), (1, 0)])
    def test_a_width_that_cannot_be(self, n: int, best_of: int) -> None:
        """Fewer than are returned, or more than the engine was built for."""
        error = refusal(n, use_beam_search=True, best_of=best_of)
        assert (error.field, error.value) == ("sampling_options.best_of", best_of)

    def test_more_choices_than_beams(self) -> None:
        """The number of choices is wrong then, whatever best_of says."""
        for best_of in (None, 5):
            error = refusal(5, use_beam_search=True, best_of=best_of)
            assert (error.field, error.value) == ("sampling_options.n", 5)

    @pytest.mark.parametrize(
        ("can", "capacity", "why"),
        [
            (EngineCapabilities(no_beams="set --beams"), 8, "set --beams"),
            (EngineCapabilities(), 8, NEVER),
            (BEAMS, 1, "--max-num-seqs"),
        ],
    )
    def test_an_engine_without_beams(self, can: EngineCapabilities, capacity: int, why: str) -> None:
        """Refused with what stands in the way: the engine, its options, or a single place."""
        for name, value in (("use_beam_search", True), ("length_penalty", 2.0)):
            error = refusal(1, can, capacity, **{name: value})
            assert error.field == f"sampling_options.{name}"
            assert why in error.allowed

    @pytest.mark.parametrize("penalty", [-10.0, 0.0, 10.0])
    def test_a_length_penalty_reaches_the_engine(self, penalty: float) -> None:
        """None is the engine's own."""
        search = searched(1, use_beam_search=True, length_penalty=penalty)
        assert search == Search(width=1, is_beam=True, length_penalty=penalty)

    @pytest.mark.parametrize("penalty", [math.nan, math.inf, 10.1, -10.1])
    def test_a_length_penalty_beyond_32_bits(self, penalty: float) -> None:
        """Scores that are no numbers have no order."""
        error = refusal(1, use_beam_search=True, length_penalty=penalty)
        assert error.field == "sampling_options.length_penalty"


@given(
    n=st.integers(1, 9),
    best_of=st.none() | st.integers(-1, 9),
    is_beam=st.none() | st.booleans(),
    penalty=st.none() | st.floats(),
    beams=st.integers(1, 9),
    samples=st.integers(0, 9),
)
def test_what_is_followed_can_be_followed(
    n: int, best_of: int | None, is_beam: bool | None, penalty: float | None, beams: int, samples: int
) -> None:
    """A search is never narrower than what it returns nor wider than its engine; a penalty is for beams."""
    can = EngineCapabilities(max_beams=beams, max_best_of=samples)
    try:
        search = searched(n, can, 8, best_of=best_of, use_beam_search=is_beam, length_penalty=penalty)
    except InvalidRequest:
        return
    if search is None:
        assert not is_beam
        assert best_of in (None, n)
        return
    assert n <= search.width <= min(8, beams if search.is_beam else samples)
    assert search.is_beam == bool(is_beam)
    assert search.is_beam or search.length_penalty is None


@pytest.mark.parametrize("stage", [Stage.PREFILL, Stage.DECODE])
@pytest.mark.parametrize(
    "options", [{"n": 2}, {"best_of": 2}, {"use_beam_search": True}], ids=lambda o: next(iter(o))
)
def test_a_request_of_two_workers_has_one_answer(stage: Stage, options: dict[str, Any]) -> None:
    """Its first token is chosen by the prefill worker, once: other choices would all begin with it."""
    can = EngineCapabilities(sampling=ALL_SAMPLING, max_n=8, max_beams=4, max_best_of=4, role=stage)
    handed = {"prefill_result": {"disaggregated_params": {"a": 1}}} if stage is Stage.DECODE else {}
    with pytest.raises(InvalidRequest) as refused:
        resolve(rules(can), **options, **handed)
    assert refused.value.field == f"sampling_options.{next(iter(options))}"
