"""Regular expressions, choices and grammars."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.errors import InvalidRequest

if TYPE_CHECKING:
    from tests.actors.engines.grammars.world import Guide

# What Python and llguidance read alike.
ATOMS = st.sampled_from(["a", "b", "0", r"\.", "[ab]", "[0-9]", "[^a]", ".", "é", "/", '"', r"\\"])
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map("".join)
        | st.lists(inner, min_size=1, max_size=3).map(lambda several: f"({'|'.join(several)})")
        | st.tuples(inner, st.sampled_from(["?", "*", "+", "{2}", "{1,3}"])).map(
            lambda two: f"({two[0]}){two[1]}"
        )
    ),
    max_leaves=8,
)


@given(pattern=PATTERNS, seed=st.integers(0, 2**32))
@settings(max_examples=80)
def test_every_answer_matches_the_pattern(guide: Guide, pattern: str, seed: int) -> None:
    """Whatever the masks let through to its end matches as a whole."""
    text = guide.walk(guide.compile("regex", pattern), random.Random(seed))
    assert text is not None
    assert re.fullmatch(pattern, text), text


@given(
    choices=st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=6), min_size=1, max_size=6)
)
@settings(max_examples=80)
def test_every_answer_is_one_of_the_choices(guide: Guide, choices: list[str]) -> None:
    """Choices are taken literally, whatever characters are in them, and each of them can be said."""
    grammar = guide.compile("choice", choices)
    assert guide.walk(grammar, random.Random(0)) in choices
    assert all(guide.accepts(grammar, choice) for choice in choices)


def test_a_choice_may_begin_with_another(guide: Guide) -> None:
    """Where one choice begins with another, both can be said, and nothing between them."""
    grammar = guide.compile("choice", ["a", "a.b*"])
    assert [guide.accepts(grammar, text) for text in ("a", "a.b*", "a.", "axb")] == [True, True, False, False]


CHOICES: dict[str, Any] = {
    "none": [],
    "an empty one": ["a", ""],
    "a number": ["a", 1],
    "a text": "ab",
    "too many": [f"choice {number}" for number in range(1001)],
}


@pytest.mark.parametrize("name", CHOICES)
def test_choices_that_are_none_are_refused(guide: Guide, name: str) -> None:
    """A list of choices has 1 to 1,000 strings, and none of them is empty."""
    with pytest.raises(InvalidRequest, match="1 to 1000 strings") as refused:
        guide.compile("choice", CHOICES[name])
    assert refused.value.field == "sampling_options.guided_decoding.choice"


@pytest.mark.parametrize("pattern", ["[a-", "(a", "a{2,1}", r"(?=a)b", r"\1", r"a\b"])
def test_a_pattern_that_cannot_be_followed_is_refused(guide: Guide, pattern: str) -> None:
    """A broken pattern, or one that looks around, is refused with what is wrong in one line."""
    with pytest.raises(InvalidRequest) as refused:
        guide.compile("regex", pattern)
    assert refused.value.field == "sampling_options.guided_decoding.regex"
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400


def test_lark(guide: Guide) -> None:
    """A grammar in Lark's syntax is followed."""
    grammar = guide.compile("grammar", 'start: "(" start ")" | "x"')
    assert guide.accepts(grammar, "((x))")
    assert not guide.accepts(grammar, "((x)")


def test_gbnf(guide: Guide) -> None:
    """A grammar in GBNF is followed."""
    grammar = guide.compile("grammar", 'root ::= "(" root ")" | [0-9]+')
    assert guide.accepts(grammar, "((12))")
    assert not guide.accepts(grammar, "()")


def test_special_tokens_in_a_grammar(guide: Guide) -> None:
    """In Lark's syntax a grammar can ask for a special token, which its text is not."""
    grammar = guide.compile("grammar", 'start: <|call|> "x"')
    assert guide.accepts(grammar, guide.vocabulary.special["<|call|>"], "x")
    assert not guide.begins(grammar, "<|call|>")


GRAMMARS = {
    "nothing": "",
    "a word": "hello",
    "an unknown rule": "start: foo",
    "an unknown rule in GBNF": "root ::= foo",
    "no end": 'start: ("a"',
    "an unknown special token": 'start: <|nope|> "a"',
    "only itself": "start: start",
    "itself first": 'start: start "a"',
    "too deep": "root ::= " + "(" * 20_000,
    "too many rules": "\n".join(f'r{number} ::= "a"' for number in range(501)),
    "many blank lines": "\n" * 60_000 + "x",
    "a temperature": "start: x\nx[temperature=2]: /a*/",
    "a stop": 'start: x "c"\nx[lazy, stop="b"]: /a*/',
    "a schema that makes no sense": 'start: %json {"type": "objekt"}',
    "no text": ["a"],
}


@pytest.mark.parametrize("name", GRAMMARS)
def test_a_grammar_that_cannot_be_followed_is_refused(guide: Guide, name: str) -> None:
    """A grammar that is none, or that asks for what is not done here, is refused by name."""
    with pytest.raises(InvalidRequest) as refused:
        guide.compile("grammar", GRAMMARS[name])
    assert refused.value.field == "sampling_options.guided_decoding.grammar"


def test_rules_of_lark_are_bounded(guide: Guide) -> None:
    """500 are followed, terminals and rules with options included; one more is refused."""
    rules = [f'r{at}: r{at + 1} "a"?' for at in range(400)]
    lazy = [f"r{at}[lazy]: T{at}" for at in range(400, 449)]
    terminals = [f"T{at}: /b/" for at in range(400, 450)]
    text = "\n".join(["start: r0", *rules, *lazy, *terminals])
    assert guide.begins(guide.compile("grammar", text), "b")
    with pytest.raises(InvalidRequest, match="at most 500 rules"):
        guide.compile("grammar", f'{text}\n ?r500.2 : "a"')


INLINE = {
    "an option of the library": '%json {"x-guidance": {"lenient": true}, "type": "string", "not": {}}',
    "what is not obeyed": '%json{"type": "string", "nullable": true}',
    "a reference to anywhere": '%json {"$ref": "#/default", "default": {"if": {}}}',
    "too deep": "%json " + '{"items":' * 70 + "{}" + "}" * 70,
    "in a grammar in the grammar": '%lark { start: %json {"nullable": true} }',
    "something in between": '%json // a remark\n{"type": "null"}',
    "no schema": "%json",
}


@pytest.mark.parametrize("name", INLINE)
def test_schemas_in_lark_are_schemas(guide: Guide, name: str) -> None:
    """What is refused in a schema is refused in one that stands in a grammar."""
    with pytest.raises(InvalidRequest) as refused:
        guide.compile("grammar", f'start: "a" {INLINE[name]}')
    assert refused.value.field.startswith("sampling_options.guided_decoding.grammar")
    assert "llguidance" not in refused.value.allowed


def test_a_schema_in_lark_is_followed(guide: Guide) -> None:
    """Beside text, and more than one."""
    grammar = guide.compile("grammar", 'start: "a" %json {"type": "null"} | %json\n{"const": 1} "b"')
    assert [guide.accepts(grammar, text) for text in ("anull", "1b", "a1", "null")] == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(("kind", "constraint"), [("regex", ""), ("regex", "()"), ("grammar", 'start: ""')])
def test_a_constraint_that_leaves_no_answer_is_refused(guide: Guide, kind: str, constraint: str) -> None:
    """Whose only answer is the empty one: with ``min_tokens`` there would be nothing to choose at all."""
    with pytest.raises(InvalidRequest, match="other answers than the empty one"):
        guide.compile(kind, constraint)


def test_an_answer_may_be_empty_where_it_need_not(guide: Guide) -> None:
    """The empty answer is one of several."""
    grammar = guide.compile("regex", "(ab)?")
    assert guide.accepts(grammar, "ab")
