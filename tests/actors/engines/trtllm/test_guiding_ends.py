"""A constraint that passes its trial never forbids every token: that would be the end of the device."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import llguidance.gbnf_to_lark
import numpy
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from actors.engines.grammars.rules import Unread
from actors.engines.grammars.walks import DeadEnd, Follower, LlguidanceFollower, walk
from actors.engines.trtllm.constraints.judging import llguidance_judge, xgrammar_judge
from actors.engines.trtllm.constraints.xgrammar_ends import check_ends
from actors.engines.trtllm.constraints.xgrammar_gbnf import ROOT, characters_of, is_empty_class, rules_of
from actors.engines.trtllm.constraints.xgrammar_tags import obeyed_tag
from protocols.errors import InvalidRequest
from protocols.spec import Guided, GuidedKind
from tests.doubles.xgrammar_path import KINDS, xgrammar_on_path

if TYPE_CHECKING:
    from actors.engines.trtllm.constraints.judging import Judge
    from tests.actors.engines.grammars.world import Guide

DEAD = 'root ::= "abcdefgh" dead\ndead ::= dead "x"'
ENDLESS = [
    (DEAD, "dead"),
    ('root ::= "abcdefgh" dead\ndead ::= "x" dead', "dead"),
    ('root ::= "abcdefgh" dead\ndead ::= two "x"\ntwo ::= "y" dead', "two"),
    ('root ::= "a" | "b" dead\ndead ::= [ab] dead', "dead"),
    ('root ::= "a" ("b" | [])', "[]"),
    (r'root ::= "a" [^\u0000-\U0010FFFF]', r"[^\u0000-\U0010FFFF]"),
    ('root ::= "a" (dead | "b")+ # dead\ndead ::= "]" dead{2,3}', "dead"),
    ('root ::= TagDispatch(\n ("<a>", x),\n stop_eos=true,\n stop_str=()\n)\nx ::= (("x" x))', "x"),
]
ENDING = [
    'root ::= "a"\ndead ::= dead "x"',
    'root ::= "" | "a" root',
    'root ::= root? [^]a] root* (root | "x") root{0,2} root{,3}',
    'root ::= (("a" tail)) (=(tail))\ntail ::= ("" | ("b"))',
    'root ::= TagDispatch(\n ("<a>", x),\n stop_eos=true,\n stop_str=("end"),\n excludes=()\n)\nx ::= ""',
]


@pytest.mark.parametrize(("text", "named"), ENDLESS)
def test_endless_rules_are_named(text: str, named: str) -> None:
    """Rules and classes that can be reached, before anything is compiled, with the field they came in."""
    with pytest.raises(InvalidRequest) as refused:
        check_ends(text, "the.field", text)
    assert refused.value.field == "the.field"
    assert f"({named} never does)" in refused.value.allowed


@pytest.mark.parametrize("text", ENDING)
def test_what_can_end_is_let_through(text: str) -> None:
    """Also what is endless and cannot be reached, or need not come."""
    check_ends(text, "grammar", text)


def test_a_grammar_in_a_structural_tag() -> None:
    """It is refused with its own path."""
    content = {"type": "grammar", "grammar": DEAD}
    with pytest.raises(InvalidRequest) as refused:
        obeyed_tag({"type": "tag", "begin": "<a>", "content": content, "end": "</a>"}, "tag")
    assert refused.value.field == "tag.content.grammar"


def test_what_the_vocabulary_cannot_say() -> None:
    """A literal with a byte that is in no token."""
    sayable = frozenset(b'abc"\xc3\xa9')
    check_ends(r'root ::= "ab\"\xe9" | [x]', "grammar", "", sayable)
    for literal in (r'"abx"', r'"a\n"', r'"\u00e8"'):
        with pytest.raises(InvalidRequest, match="never does"):
            check_ends(f'root ::= "a" | "b" {literal}', "grammar", "", sayable)


def test_a_vocabulary_of_all_bytes_can_say_everything(guide: Guide) -> None:
    """But 0xFF, which is in no text, and which llguidance writes in front of special tokens."""
    assert guide.vocabulary.sayable() == frozenset(range(255))


@pytest.mark.parametrize(
    ("word", "is_empty"),
    [
        ("[]", True),
        ("[^]", False),
        (r"[^\0-\U0010ffff]", True),
        (r"[^\x00-a\u0062-\U0010fffe\U0010ffff]", True),
        (r"[^\0-ac-\U0010ffff]", False),
        ("[a-]", False),
        ('"[]"', False),
    ],
)
def test_classes_without_members(word: str, is_empty: bool) -> None:
    """Also those that leave out every character there is."""
    assert is_empty_class(word) is is_empty


def test_escapes() -> None:
    """In literals, as xgrammar writes and reads them."""
    assert characters_of(r'"a\n\"\\\x41\u00e9\U0001F600\0"') == 'a\n"\\Aé😀\0'


@given(st.text(alphabet='root:=ab"()[]|?*+{}0,^-\\# \nTagDispatch', max_size=60))
def test_any_text_is_read_or_not(text: str) -> None:
    """Nothing else happens: it is a caller's."""
    with suppress(Unread):
        rules_of(text).endless(ROOT, is_empty_class)


@pytest.fixture(params=["llguidance", *KINDS], scope="module")
def kind(request: pytest.FixtureRequest) -> str:
    """Who judges."""
    return str(request.param)


def _judge(kind: str, guide: Guide) -> Judge:
    if kind == "llguidance":
        return llguidance_judge(guide.vocabulary)
    with xgrammar_on_path(kind):
        return xgrammar_judge(guide.vocabulary)


@pytest.mark.parametrize(("text", "named"), ENDLESS[:5])
def test_either_back_end_refuses_it(kind: str, guide: Guide, text: str, named: str) -> None:
    """By the name of the field."""
    del named
    with pytest.raises(InvalidRequest) as refused:
        _judge(kind, guide)(Guided(kind=GuidedKind.GRAMMAR, constraint=text))
    assert refused.value.field == "sampling_options.guided_decoding.grammar"


@pytest.mark.parametrize(
    "text",
    [
        'start: "abcdefgh" D\nD: /[^\\s\\S]/',
        'start: "abcdefgh" D\nD: /a/ & /b/',
        "start: /abcdefgh/ /[^\\s\\S]/",
    ],
)
def test_patterns_that_nothing_matches(guide: Guide, text: str) -> None:
    """llguidance compiles them, and has nothing to offer when it gets there."""
    with pytest.raises(InvalidRequest, match="never does"):
        llguidance_judge(guide.vocabulary)(Guided(kind=GuidedKind.GRAMMAR, constraint=text))


@pytest.mark.parametrize("schema", [{"enum": []}, {"type": "array", "items": False, "minItems": 1}])
def test_schemas_that_nothing_is_valid_for(kind: str, guide: Guide, schema: Any) -> None:
    """Also inside of others."""
    inside = {"type": "object", "properties": {"abcdefgh": schema}, "required": ["abcdefgh"]}
    for one in (schema, inside):
        with pytest.raises(InvalidRequest):
            _judge(kind, guide)(Guided(kind=GuidedKind.JSON, constraint=one))


class Corridor:
    """Three tokens, and then nothing; it began with ``width`` tokens to choose from."""

    def __init__(self, length: int, is_ended: bool) -> None:
        self._left = length
        self._is_ended = is_ended

    def allowed(self) -> Any:
        return numpy.array([self._left > 0, self._left > 0, self._left == 0 and self._is_ended], numpy.uint8)

    def take(self, token: int) -> bool:
        assert token in (0, 1)
        self._left -= 1
        return True


@pytest.mark.parametrize("length", [0, 1, 40])
def test_a_walk_finds_the_end_of_a_corridor(length: int) -> None:
    """Where no token may come it is a dead end, however far away; where an end may, it is none."""

    def begin(is_ended: bool) -> Follower:
        return Corridor(length, is_ended)

    walk(lambda: begin(True), [2])
    with pytest.raises(DeadEnd):
        walk(lambda: begin(False), [2])


WORDS = st.sampled_from(['"a"', '"bc"', "[ab]", "[^a]", '""', "[]", "x", "y", "z", "(x | y)", "z?", "x*"])
RULE = st.lists(st.lists(WORDS, min_size=1, max_size=3).map(" ".join), min_size=1, max_size=2).map(" | ".join)
GRAMMARS = st.fixed_dictionaries({"root": RULE, "x": RULE, "y": RULE, "z": RULE}).map(
    lambda rules: "\n".join(f"{name} ::= {body}" for name, body in rules.items())
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=GRAMMARS, seed=st.integers(0, 2**32))
def test_what_passes_has_no_dead_end(guide: Guide, text: str, seed: int) -> None:
    """Random grammars: of those that can end, none forbids every token on random ways."""
    try:
        check_ends(text, "grammar", text)
        lark = llguidance.gbnf_to_lark.gbnf_to_lark(text)
    except Exception:
        return
    source = llguidance.LLMatcher.grammar_from_lark(lark)
    matcher = llguidance.LLMatcher(guide.vocabulary.library, source, log_level=0)
    if matcher.is_error():
        return
    chance = random.Random(seed)
    for _ in range(4):
        follower = LlguidanceFollower(matcher, guide.vocabulary.width)
        for _ in range(30):
            allowed = follower.allowed()
            assert allowed.any(), text
            if not follower.take(int(chance.choice(allowed.nonzero()[0].tolist()))):
                break
