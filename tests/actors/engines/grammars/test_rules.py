"""Rules that can never end: found in Lark text, named, and nothing else is."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.engines.grammars.lark_rules import ROOT, read_lark
from actors.engines.grammars.rules import Piece, Rules, Sign, Unread

Body = list[list[str]]
NAMES = ("start", "a", "b", "c")
BODIES = st.lists(st.lists(st.sampled_from((*NAMES, "word")), max_size=3), min_size=1, max_size=3)


def _never(_: str) -> bool:
    return False


def _rules(bodies: dict[str, Body]) -> Rules:
    pieces: list[Piece] = []
    for name, body in bodies.items():
        pieces.append(Piece(Sign.RULE, name))
        for place, alternative in enumerate(body):
            pieces += [Piece(Sign.OR)] if place else []
            pieces += [Piece(Sign.NAME if use in NAMES else Sign.WORD, use) for use in alternative]
    return Rules(pieces)


def _ends_within(bodies: dict[str, Body], depth: int) -> set[str]:
    """By the definition: a rule ends whose rules end with one step less."""
    ending: set[str] = set()
    for _ in range(depth):
        ending = {
            name
            for name, body in bodies.items()
            if any(all(use == "word" or use in ending for use in alternative) for alternative in body)
        }
    return ending


def _reached(bodies: dict[str, Body]) -> set[str]:
    found = {"start"}
    for _ in bodies:
        found |= {use for name in found for alternative in bodies[name] for use in alternative} - {"word"}
    return found


@given(st.fixed_dictionaries(dict.fromkeys(NAMES, BODIES)))
def test_it_is_what_the_definition_says(bodies: dict[str, Body]) -> None:
    """One is found if and only if there is one, and it is one."""
    endless = _reached(bodies) - _ends_within(bodies, len(bodies))
    found = _rules(bodies).endless("start", _never)
    assert found in endless if endless else found is None


@pytest.mark.parametrize(
    ("text", "endless"),
    [
        ('start: "a" dead\ndead: dead "x"', "dead"),
        ("start: a\na: /[ab]/ a", "a"),
        ('start: "a" | "b" (dead)+\ndead: "x" dead', "dead"),
        ('start: "a" dead~2..3\ndead: "x" dead', "dead"),
        ('start: "a"\ndead: dead', None),
        ("start: D start?\nD: /a/ & ~/b/", None),
        ("start: [start] (start)* start{0,2} start~0..1 /a/", None),
        ('!start.2: a -> name // dead: dead\n  | "b" # x\n a[lazy]: "a".."z"', None),
        ('%llguidance {"x": "start: start"}\nstart: %json {"type": "null"} | <end> <[1-2]>', None),
    ],
)
def test_lark(text: str, endless: str | None) -> None:
    """Groups, repetitions, comments and schemas are read for what they are."""
    assert read_lark(text).rules.endless(ROOT, _never) == endless


def test_a_dead_word_is_named() -> None:
    """Where it can be reached, and only there; terminals are words."""
    read = read_lark('start: "a" D\nD: /a/ & /b/\nE: /x/\nunused: E')
    asked: list[str] = []

    def is_dead(word: str) -> bool:
        asked.append(word)
        return word == "D"

    assert read.rules.endless(ROOT, is_dead) == "D"
    assert asked == ['"a"', "D"]
    assert "D: /a/ & /b/" in read.alone("D")


@pytest.mark.parametrize(
    "text",
    ["start: (", "start: )", "start: ?", "a", "start: a\nstart: b", "start: a::b", "start: %lark {\n}"],
)
def test_what_cannot_be_read(text: str) -> None:
    """Nothing is said of it."""
    with pytest.raises(Unread):
        read_lark(text)


@given(st.text(alphabet='start:ab"/()[]|?*+~{}0,.<>%#&- \n\\', max_size=60))
def test_any_text(text: str) -> None:
    """It is read, or it is not: nothing else happens."""
    with suppress(Unread):
        read_lark(text).rules.endless(ROOT, _never)
