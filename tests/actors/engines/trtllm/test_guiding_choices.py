"""Choices as a pattern: exactly the choices match, as Python sees it and as the back-ends do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.engines.trtllm.constraints.choices import choice_pattern
from protocols.errors import InvalidRequest

if TYPE_CHECKING:
    from tests.actors.engines.grammars.world import Guide

FIELD = "sampling_options.guided_decoding.choice"
# Whole characters: half a one is refused before, by its size in bytes.
LETTERS = st.characters(exclude_categories=["Cs"])
WORDS = st.text(LETTERS, min_size=1, max_size=6)
SPECIAL = st.text("a.|+*?()[]{}^$\\/-&~#<> \n\t\0", min_size=1, max_size=5)
CHOICES = st.lists(WORDS | SPECIAL, min_size=1, max_size=6)


@given(CHOICES, st.lists(WORDS | SPECIAL, max_size=6))
def test_exactly_the_choices_match(choices: list[str], others: list[str]) -> None:
    """Also those that begin with one another, or are made of what is special in a pattern."""
    pattern = re.compile(choice_pattern(choices, FIELD))
    near = [choice[:-1] for choice in choices] + [choice + choices[0] for choice in choices]
    for text in [*choices, *others, *near]:
        assert (pattern.fullmatch(text) is not None) == (text in choices)


@pytest.mark.parametrize(
    "choices",
    [
        ["yes", "no"],
        ["a", "ab", "abc"],
        ["a|b", "(c", "[d]", "{2}", "^", "$", "\\d", ".", "-", "/"],
        ["é", "☃", "😀", "\u2028", "\u0085"],
        ["\0", "\n", "\t", "\x7f", "\x1b[", "\x1f0"],
        [" ", "  "],
    ],
)
def test_llguidance_reads_it_the_same(guide: Guide, choices: list[str]) -> None:
    """The pattern allows each choice and nothing that is not one."""
    grammar = guide.compile("regex", choice_pattern(choices, FIELD))
    for choice in choices:
        assert guide.accepts(grammar, choice)
        for other in (f"{choice}x", f"x{choice}", choice[:-1]):
            assert guide.accepts(grammar, other) == (other in choices)


@pytest.mark.parametrize("wrong", [None, "ab", [], ["a", ""], ["a", 1], ["x"] * 1_001])
def test_what_is_no_list_of_choices(wrong: object) -> None:
    """It is refused with what would be one."""
    with pytest.raises(InvalidRequest, match="a list of 1 to 1000 strings, none of them empty"):
        choice_pattern(wrong, FIELD)
