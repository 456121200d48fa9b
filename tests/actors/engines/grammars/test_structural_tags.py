"""Structural tags: free text with places that have a form."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from protocols.errors import InvalidRequest
from tests.actors.engines.grammars.world import CALL, END, STOP, THINK

if TYPE_CHECKING:
    from tests.actors.engines.grammars.world import Guide

FIELD = "sampling_options.guided_decoding.structural_tag"
NUMBER = {"type": "json_schema", "json_schema": {"type": "integer"}, "style": "json"}
FOO = {"type": "tag", "begin": "<fn=foo>", "content": NUMBER, "end": "</fn>"}
BAR = {"begin": "<fn=bar>", "content": {"type": "json_schema", "json_schema": True}, "end": "</fn>"}
A_FOO, A_BAR = "<fn=foo>1</fn>", '<fn=bar>["a"]</fn>'


def const(value: str) -> dict[str, Any]:
    return {"type": "const_string", "value": value}


def calls(**options: Any) -> dict[str, Any]:
    return {"type": "triggered_tags", "triggers": ["<fn="], "tags": [FOO, BAR], **options}


def tag(begin: Any, content: Any, end: Any) -> dict[str, Any]:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


# A format, what it lets through, and what it holds back.
PLAIN: dict[str, tuple[dict[str, Any], list[str], list[str]]] = {
    "const_string": (const("a/b\n"), ["a/b\n"], ["a/b", "x"]),
    "json_schema": (NUMBER, ["12"], ['"a"']),
    "regex": ({"type": "regex", "pattern": "a+/"}, ["aa/"], ["/"]),
    "grammar": ({"type": "grammar", "grammar": 'root ::= "a" root | "b"'}, ["aab"], ["aa"]),
    "any_text": ({"type": "any_text"}, ["", "any\nthing"], []),
    "any_text without": ({"type": "any_text", "excludes": ["foo", "b/r"]}, ["fo o"], ["a foo", "b/r"]),
    "sequence": ({"type": "sequence", "elements": [const("a"), NUMBER]}, ["a1"], ["a", "1"]),
    "or": ({"type": "or", "elements": [const("a"), NUMBER]}, ["a", "1"], ["a1", "b"]),
    "optional": ({"type": "optional", "content": const("ab")}, ["", "ab"], ["abab", "a"]),
    "star": ({"type": "star", "content": const("ab")}, ["", "abab"], ["aba"]),
    "plus": ({"type": "plus", "content": const("ab")}, ["ab", "abab"], [""]),
    "repeat": ({"type": "repeat", "min": 1, "max": 2, "content": const("a")}, ["a", "aa"], ["", "aaa"]),
    "repeat for ever": ({"type": "repeat", "min": 2, "max": -1, "content": const("a")}, ["aaaa"], ["a"]),
    "tag": (tag("<a>", NUMBER, "</a>"), ["<a>5</a>"], ["<a>5", "5"]),
    "tag with several ends": (tag("", {"type": "any_text"}, ["!", "?"]), ["a!", "b?"], ["a", "a!b"]),
    "tag around text": (tag("<a>", {"type": "any_text"}, "</a>"), ["<a>x < y</a>"], ["<a>x</a> ", "<a>"]),
    "tag around a pattern": (tag("", {"type": "regex", "pattern": "[a-z!]*"}, "!"), ["ab!", "a!!"], ["ab"]),
    "calls": (calls(), ["", f"a {A_FOO} b{A_BAR}c", "a <fn"], ["<fn=", "<fn=baz", "<fn=foo>x"]),
    "at least one": (calls(at_least_one=True), [f"{A_FOO} b {A_BAR}"], ["a", f" {A_FOO}"]),
    "the first only": (calls(stop_after_first=True), ["a", f"a {A_FOO}"], [f"a{A_FOO} ", f"a{A_FOO}{A_BAR}"]),
    "exactly one": (calls(at_least_one=True, stop_after_first=True), [A_BAR], ["", f"{A_FOO}{A_FOO}"]),
    "calls without": (calls(excludes=["foo"]), ["a", A_BAR], ["foo", f"foo {A_BAR}"]),
    "calls in a tag": (tag("<t>", calls(), "</t>"), [f"<t>a{A_FOO}b</t>", "<t></t>"], [f"<t>{A_FOO}"]),
    "thinking first": (
        {"type": "sequence", "elements": [tag("", {"type": "any_text"}, "<.>"), calls(at_least_one=True)]},
        [f"hm <.>{A_FOO}"],
        [A_FOO, "hm <.> "],
    ),
    "separated": (
        {"type": "tags_with_separator", "tags": [FOO, BAR], "separator": ", "},
        ["", A_FOO, f"{A_FOO}, {A_BAR}"],
        [f"{A_FOO}{A_BAR}", f"{A_FOO}, "],
    ),
    "separated by nothing": (
        {"type": "tags_with_separator", "tags": [FOO], "separator": "", "at_least_one": True},
        [A_FOO, A_FOO + A_FOO],
        ["", A_FOO + " "],
    ),
    "an empty ban": (tag("", {"type": "any_tokens", "exclude_tokens": []}, ""), ["abc"], []),
    "a ban of what is no token": (
        tag("", {"type": "any_tokens", "exclude_tokens": ["<tool>"]}, ""),
        ["a <too"],
        ["a <tool>"],
    ),
}


@pytest.mark.parametrize("name", PLAIN)
def test_formats(guide: Guide, name: str) -> None:
    """Each format lets its texts through, and no others."""
    format_, right, wrong = PLAIN[name]
    grammar = guide.tag(format_)
    assert [text for text in right if not guide.accepts(grammar, text)] == []
    assert [text for text in wrong if guide.accepts(grammar, text)] == []


def test_text_cannot_run_over_a_trigger(guide: Guide) -> None:
    """Once a trigger is said, only the tags that begin with it go on."""
    assert not guide.begins(guide.tag(calls()), "a <fn=b!")


def test_a_trigger_that_is_a_special_token(guide: Guide) -> None:
    """Where trigger and end are special tokens of the model, the tokens count and not their spelling."""
    call, think = guide.vocabulary.special[CALL], guide.vocabulary.special[THINK]
    body = {"begin": f"{CALL}f:", "content": NUMBER, "end": THINK}
    grammar = guide.tag({"type": "triggered_tags", "triggers": [CALL], "tags": [body]})
    assert guide.accepts(grammar, "a", call, "f:12", think, "b", call, "f:3", think)
    assert guide.accepts(grammar, "spelled: <|call|>")
    assert not guide.begins(grammar, "a", call, "g")
    assert not guide.accepts(grammar, "a", call, "f:12")


def test_a_trigger_that_cuts_a_special_token(guide: Guide) -> None:
    """A trigger that is the beginning of a special token waits for the whole token."""
    call = guide.vocabulary.special[CALL]
    body = {"begin": f"{CALL}f", "content": NUMBER, "end": ";"}
    grammar = guide.tag({"type": "triggered_tags", "triggers": ["<|ca"], "tags": [body]})
    assert guide.accepts(grammar, "a", call, "f1;b")


def test_text_that_ends_with_a_special_token(guide: Guide) -> None:
    """Thinking goes on until the token; its spelling is text."""
    grammar = guide.tag({"type": "sequence", "elements": [tag("", {"type": "any_text"}, THINK), const("x")]})
    assert guide.accepts(grammar, "hm </think> hm", guide.vocabulary.special[THINK], "x")
    assert not guide.accepts(grammar, "hm </think>x")


def test_a_ban_of_tokens(guide: Guide) -> None:
    """A token that is banned cannot come; all others can, special ones too; an end token ends."""
    call, think, end = (guide.vocabulary.special[name] for name in (CALL, THINK, END))
    for banned in ([CALL], [call]):
        grammar = guide.tag(tag("", {"type": "any_tokens", "exclude_tokens": banned}, ""))
        assert guide.accepts(grammar, "a", think, "b")
        assert not guide.begins(grammar, "a", call)
        assert guide.accepts(grammar, "a", end)


def test_tokens_up_to_a_token(guide: Guide) -> None:
    """Any tokens, up to the special token that ends them."""
    call, think = guide.vocabulary.special[CALL], guide.vocabulary.special[THINK]
    grammar = guide.tag(
        tag({"type": "token", "token": CALL}, {"type": "any_tokens"}, {"type": "token", "token": think})
    )
    assert guide.accepts(grammar, call, "ab", call, think)
    assert not guide.accepts(grammar, call, "ab")
    assert not guide.begins(grammar, call, think, "a")


def test_one_token(guide: Guide) -> None:
    """A token, and any token but some."""
    call, think = guide.vocabulary.special[CALL], guide.vocabulary.special[THINK]
    both = [{"type": "token", "token": CALL}, {"type": "exclude_token", "exclude_tokens": [CALL]}]
    grammar = guide.tag({"type": "sequence", "elements": both})
    assert guide.accepts(grammar, call, think)
    assert not guide.accepts(grammar, call, call)


def test_no_token_that_does_not_exist(guide: Guide) -> None:
    """A ban lets no token through that only the width of the logits knows."""
    grammar = guide.tag(tag("", {"type": "any_tokens", "exclude_tokens": [CALL]}, ""))
    assert max(guide.allowed(grammar.new_state())) == guide.vocabulary.tokens - 1


def test_the_older_form(guide: Guide) -> None:
    """Structures and triggers, with schemas as objects or as text, and the whole as text."""
    structure = {"begin": "<fn=foo>", "schema": '{"type": "integer"}', "end": "</fn>"}
    old = {"type": "structural_tag", "structures": [structure], "triggers": ["<fn="]}
    for constraint in (old, json.dumps(old)):
        grammar = guide.compile("structural_tag", constraint)
        assert guide.accepts(grammar, f"a {A_FOO} b")
        assert not guide.begins(grammar, "<fn=foo>x")


# A format, the rest of the path to what is wrong with it, and what was wrong.
REFUSED: dict[str, tuple[Any, str, object]] = {
    "no format": (None, "", None),
    "an unknown type": ({"type": "dispatch"}, ".type", "dispatch"),
    "no type": ({"value": "a"}, ".type", None),
    "an unknown field": ({**const("a"), "flavour": 1}, "", "flavour"),
    "no value": ({"type": "const_string"}, ".value", None),
    "another style": ({**NUMBER, "style": "qwen_xml"}, ".style", "qwen_xml"),
    "a schema that is none": ({"type": "json_schema", "json_schema": 1}, ".json_schema", 1),
    "a keyword": (
        {"type": "json_schema", "json_schema": {"items": {"nullable": True}}},
        ".json_schema.items",
        "nullable",
    ),
    "a pattern": (
        {"type": "sequence", "elements": [{"type": "regex", "pattern": "(a"}]},
        ".elements[0].pattern",
        "(a",
    ),
    "a grammar": ({"type": "grammar", "grammar": "start: b"}, ".grammar", "start: b"),
    "no elements": ({"type": "or", "elements": []}, ".elements", []),
    "text in the middle": (
        {"type": "sequence", "elements": [{"type": "any_text"}, const("a")]},
        ".elements[0]",
        "any_text",
    ),
    "text again and again": ({"type": "star", "content": {"type": "any_text"}}, ".content", "any_text"),
    "a count": ({"type": "repeat", "min": 3, "max": 2, "content": const("a")}, ".max", 2),
    "a trigger too few": ({**calls(), "triggers": ["<gn="]}, ".tags[0].begin", "<fn=foo>"),
    "a trigger too many": ({**calls(), "triggers": ["<fn=", "<fn"]}, ".tags[0].begin", "<fn=foo>"),
    "no triggers": ({**calls(), "triggers": []}, ".triggers", []),
    "a tag that is none": ({**calls(), "tags": [const("a")]}, ".tags[0].type", "const_string"),
    "a tag without an end": (
        {**calls(), "tags": [tag("<fn=", {"type": "any_text"}, "")]},
        ".tags[0]",
        "tag",
    ),
    "a token that is none": ({"type": "token", "token": "<|nope|>"}, ".token", "<|nope|>"),
    "a number that is no token": (
        {"type": "any_tokens", "exclude_tokens": [9999]},
        ".exclude_tokens[0]",
        9999,
    ),
    "an end that ends the answer": (tag("a", NUMBER, END), ".end", END),
    "a flag": ({**calls(), "at_least_one": "yes"}, ".at_least_one", "yes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_expressed_is_refused_by_name(guide: Guide, name: str) -> None:
    """A format that cannot be followed is refused with the path inside the format."""
    format_, path, value = REFUSED[name]
    with pytest.raises(InvalidRequest) as refused:
        guide.tag(format_)
    assert (refused.value.field, refused.value.value) == (f"{FIELD}.format{path}", value)


@pytest.mark.parametrize(
    "constraint", ["{not json", 3, {"type": "json_object"}, {"format": {}, "x": 1}, {}], ids=str
)
def test_what_is_no_structural_tag_is_refused(guide: Guide, constraint: Any) -> None:
    """Anything else than a structural tag is refused with its field."""
    with pytest.raises(InvalidRequest) as refused:
        guide.compile("structural_tag", constraint)
    assert refused.value.field.startswith(FIELD)


def test_another_end_token_is_no_end_of_a_format(guide: Guide) -> None:
    """A special token that does not end answers may end a tag."""
    grammar = guide.tag(tag("a", NUMBER, STOP))
    assert guide.accepts(grammar, "a1", guide.vocabulary.special[STOP])
