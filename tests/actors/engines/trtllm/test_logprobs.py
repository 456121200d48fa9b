"""Log-probabilities belong to the tokens they are told with; what is missing is not made up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.engines.trtllm.answers.logprobs import position_of, positions_of, prompt_positions_of
from protocols.steps import Candidate

if TYPE_CHECKING:
    from actors.engines.trtllm.library import Library


def test_the_token_stands_first(library: Library) -> None:
    """Then the most likely ones without it."""
    entry = {5: library.Logprob(-2.0, 3), 8: library.Logprob(-0.5, 1), 9: library.Logprob(-1.0, 2)}
    assert position_of(entry, 5, 2) == [Candidate(5, -2.0, 3), Candidate(8, -0.5, 1), Candidate(9, -1.0, 2)]


def test_no_more_than_asked_for(library: Library) -> None:
    """The floor of the library's own count is not the caller's."""
    entry = {8: library.Logprob(-0.5, 1), 9: library.Logprob(-1.0, 2)}
    assert position_of(entry, 9, 0) == [Candidate(9, -1.0, 2)]
    assert position_of(entry, 8, 1) == [Candidate(8, -0.5, 1)]


def test_missing_ranks_are_places(library: Library) -> None:
    """Among what was told."""
    entry = {5: library.Logprob(-2.0), 8: library.Logprob(-0.5)}
    assert position_of(entry, 5, 1) == [Candidate(5, -2.0, 2), Candidate(8, -0.5, 1)]


def test_a_token_that_is_not_in_its_entry_is_not_told(library: Library) -> None:
    """Another's value is never taken for it."""
    assert position_of({8: library.Logprob(-0.5, 1)}, 5, 1) == []
    assert position_of(None, 5, 1) == []


def test_the_first_token_of_a_decode_may_have_none(library: Library) -> None:
    """The entries belong to the last tokens."""
    entries = [{6: library.Logprob(-0.5, 1)}, {7: library.Logprob(-0.25, 1)}]
    assert positions_of(entries, [5, 6], 0, 3, 0) == [[], [Candidate(6, -0.5, 1)]]
    assert positions_of(entries, [7], 2, 3, 0) == [[Candidate(7, -0.25, 1)]]


def test_a_prompts_entries_tell_of_the_token_behind(library: Library) -> None:
    """The first has none; the last entry is about the first token of the answer."""
    entries = [{2: library.Logprob(-0.5, 1)}, {3: library.Logprob(-0.25, 1)}, {9: library.Logprob(-0.1, 1)}]
    assert prompt_positions_of(entries, (1, 2, 3), 0) == [
        None,
        [Candidate(2, -0.5, 1)],
        [Candidate(3, -0.25, 1)],
    ]
    assert prompt_positions_of([], (1, 2), 0) == [None, []]
