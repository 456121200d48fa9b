"""Constraints in TensorRT-LLM's words: what each back-end is given, and what is refused before."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from actors.engines.trtllm.constraints.guiding import (
    Backend,
    Guide,
    Option,
    guide_of,
    guided_kinds,
    guided_params,
)
from protocols.errors import EngineStartError, InternalError, InvalidRequest
from protocols.spec import Guided, GuidedKind

if TYPE_CHECKING:
    from actors.engines.trtllm.library import Library

BOTH = tuple(Backend)
TAG = {"type": "tag", "begin": "<a>", "content": {"type": "any_text"}, "end": "</a>"}
OLDER = {"structures": [{"begin": "<a>", "schema": {"type": "null"}, "end": "</a>"}], "triggers": ["<a"]}


def constraint(kind: str, value: Any) -> Guided:
    return Guided(kind=GuidedKind(kind), constraint=value)


@pytest.mark.parametrize("backend", BOTH)
@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("json", {"type": "object"}, Guide(Option.JSON, '{"type":"object"}')),
        ("json", ' {"type" : "null"} ', Guide(Option.JSON, '{"type":"null"}')),
        ("json", {}, Guide(Option.JSON, "{}")),
        ("json", True, Guide(Option.JSON, "{}")),
        ("json", {"const": "é"}, Guide(Option.JSON, '{"const":"é"}')),
        ("regex", "[a-z]+", Guide(Option.REGEX, "[a-z]+")),
        ("choice", ["yes", "no", "yes"], Guide(Option.REGEX, "yes|no")),
        ("choice", ["a.b", "1+1"], Guide(Option.REGEX, r"a\.b|1\+1")),
    ],
)
def test_both_are_given_the_same(backend: Backend, kind: str, value: Any, expected: Guide) -> None:
    """A schema as JSON text, never as "any object"; choices as an escaped alternation."""
    assert guide_of(constraint(kind, value), backend) == expected


def test_grammars_in_the_language_that_is_read() -> None:
    """llguidance gets Lark, made of GBNF where it has to be; xgrammar gets GBNF as it came, and no Lark."""
    gbnf, lark = 'root ::= "a" | "b"', 'start: "a" | "b"'
    assert guide_of(constraint("grammar", lark), Backend.LLGUIDANCE) == Guide(Option.GRAMMAR, lark)
    made = guide_of(constraint("grammar", gbnf), Backend.LLGUIDANCE)
    assert made.option is Option.GRAMMAR
    assert "start:" in made.text
    assert guide_of(constraint("grammar", gbnf), Backend.XGRAMMAR) == Guide(Option.GRAMMAR, gbnf)
    with pytest.raises(InvalidRequest, match="xgrammar reads no Lark"):
        guide_of(constraint("grammar", lark), Backend.XGRAMMAR)


@pytest.mark.parametrize("as_text", [False, True])
def test_structural_tags_are_for_xgrammar(as_text: bool) -> None:
    """In its newer form, whichever came; llguidance follows none, and says so."""
    newer: Any = {"type": "structural_tag", "format": TAG}
    given = constraint("structural_tag", json.dumps(newer) if as_text else newer)
    guide = guide_of(given, Backend.XGRAMMAR)
    assert (guide.option, json.loads(guide.text)) == (Option.STRUCTURAL_TAG, newer)
    older = guide_of(constraint("structural_tag", OLDER), Backend.XGRAMMAR)
    assert json.loads(older.text)["format"]["triggers"] == ["<a"]
    with pytest.raises(InvalidRequest, match="llguidance follows no structural tags") as refused:
        guide_of(given, Backend.LLGUIDANCE)
    assert refused.value.field == "sampling_options.guided_decoding.structural_tag"


@pytest.mark.parametrize("backend", BOTH)
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("json", ""),
        ("json", "{not json"),
        ("json", ["a"]),
        ("json", {"type": "object", "frobnicate": 1}),
        ("regex", ""),
        ("regex", ["a"]),
        ("choice", []),
        ("choice", ["a", ""]),
        ("choice", "yes"),
        ("choice", [f"{at}" for at in range(1_001)]),
        ("grammar", ""),
        ("grammar", "nonsense"),
        ("structural_tag", "{"),
        ("structural_tag", {"type": "structural_tag", "format": "x"}),
    ],
)
def test_what_is_surely_wrong(backend: Backend, kind: str, value: Any) -> None:
    """It is refused by the name of its kind. No text is empty: that would be none, or any JSON."""
    with pytest.raises(InvalidRequest) as refused:
        guide_of(constraint(kind, value), backend)
    assert refused.value.field.startswith(f"sampling_options.guided_decoding.{kind}")


def test_kinds_by_back_end() -> None:
    """Without a back-end there are none; another word stops the start."""
    assert guided_kinds(None) == frozenset()
    assert guided_kinds("xgrammar") == frozenset(GuidedKind)
    assert guided_kinds("llguidance") == frozenset(GuidedKind) - {GuidedKind.STRUCTURAL_TAG}
    with pytest.raises(EngineStartError, match=r"'outlines'.*xgrammar or llguidance"):
        guided_kinds("outlines")


@pytest.mark.parametrize("option", list(Option))
def test_the_library_gets_one_option(library: Library, option: Option) -> None:
    """Every time an object of its own, with this one text and nothing beside it."""
    prepared = Guided(kind=GuidedKind.JSON, constraint={}, grammar=Guide(option, "{}"))
    params = guided_params(prepared, library)
    told = {one.value: getattr(params, one.value) for one in Option}
    assert {name for name, text in told.items() if text is not None} == {option.value}
    assert told[option.value] == "{}"
    assert not params.json_object
    assert guided_params(prepared, library) is not params


def test_nothing_unprepared_reaches_the_library(library: Library) -> None:
    """A constraint that nobody tried is our own fault."""
    with pytest.raises(InternalError):
        guided_params(constraint("regex", "a"), library)
