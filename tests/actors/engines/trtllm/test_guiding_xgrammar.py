"""What xgrammar would pass over: schemas, patterns and structural tags, refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from actors.engines.grammars.schemas import check_schema
from actors.engines.trtllm.constraints.xgrammar_patterns import check_pattern
from actors.engines.trtllm.constraints.xgrammar_schemas import obeyed
from actors.engines.trtllm.constraints.xgrammar_tags import obeyed_tag
from protocols.errors import InvalidRequest

INTEGER: dict[str, Any] = {"type": "integer"}
STRING: dict[str, Any] = {"type": "string"}


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"type": "object"},
        {"type": "object", "properties": {"x": INTEGER}, "required": ["x"], "additionalProperties": False},
        {"properties": {"x": INTEGER}, "required": ["x"], "minProperties": 1},
        {"items": INTEGER, "minItems": 1},
        {"type": ["string", "null"], "maxLength": 3},
        {"type": "string", "enum": ["a", "b"]},
        {"type": ["integer", "null"], "enum": [1, 2.0, None]},
        {"type": "number", "const": 1.5},
        {"anyOf": [INTEGER, STRING], "title": "x", "default": 1},
        {"$ref": "#/$defs/x", "description": "y", "$defs": {"x": INTEGER}},
        {"allOf": [INTEGER]},
        {"type": "object", "additionalProperties": INTEGER},
        {"type": "object", "patternProperties": {"^x$": INTEGER}, "additionalProperties": False},
        {"type": "array", "prefixItems": [INTEGER], "items": STRING, "maxItems": 3},
        {"type": "string", "pattern": "^[a-z]+$"},
        {"type": "string", "format": "date"},
    ],
)
def test_what_is_obeyed(schema: Any) -> None:
    """Such schemas are let through."""
    check_schema(schema, "json")
    obeyed(schema, "json")


@pytest.mark.parametrize(
    ("schema", "field", "named"),
    [
        ({"type": "integer", "multipleOf": 3}, "json", "'multipleOf'"),
        ({"type": "array", "items": [INTEGER], "additionalItems": STRING}, "json", "'items'"),
        ({"$ref": "#/$defs/x", "minimum": 3, "$defs": {"x": INTEGER}}, "json", "'minimum'"),
        ({"allOf": [INTEGER, {"minimum": 3}]}, "json.allOf", "minimum"),
        ({"type": "integer", "enum": [1, "a"]}, "json.enum", "'a'"),
        ({"type": "integer", "const": True}, "json.const", "True"),
        ({"maxLength": 3}, "json", "'maxLength'"),
        ({"minimum": 3}, "json", "'minimum'"),
        ({"minItems": 3}, "json", "'minItems'"),
        ({"required": ["x"]}, "json", "'required'"),
        ({"patternProperties": {"x": INTEGER}}, "json", "'patternProperties'"),
        ({"type": "string", "pattern": "a+", "maxLength": 3}, "json", "'maxLength'"),
        ({"type": "string", "format": "date", "pattern": "2.*"}, "json", "'pattern'"),
        ({"type": "object", "properties": {"x": INTEGER}, "required": ["x", "y"]}, "json.required", "'y'"),
        (
            {"type": "object", "properties": {"x": INTEGER}, "additionalProperties": True},
            "json.additionalProperties",
            "True",
        ),
        (
            {"type": "object", "properties": {"x": INTEGER}, "additionalProperties": STRING},
            "json.additionalProperties",
            "string",
        ),
        (
            {"type": "object", "patternProperties": {"^x": INTEGER}, "properties": {"a": INTEGER}},
            "json",
            "'properties'",
        ),
        ({"type": "object", "properties": {'a"': INTEGER}}, "json.properties", "a"),
        ({"type": "object", "additionalProperties": INTEGER, "minProperties": 2}, "json.minProperties", "2"),
        ({"type": "array", "items": {"anyOf": [{"maxLength": 1}]}}, "json.items.anyOf[0]", "'maxLength'"),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"minLength": 1}}}, "json.$defs.x", "'minLength'"),
        ({"type": "string", "pattern": "a^b"}, "json.pattern", "'a^b'"),
        ({"type": "object", "patternProperties": {r"\Ax": INTEGER}}, "json.patternProperties", "A'"),
    ],
)
def test_what_would_be_passed_over(schema: Any, field: str, named: str) -> None:
    """It is refused with the path to the keyword, although the schema is a good one."""
    check_schema(schema, "json")
    with pytest.raises(InvalidRequest) as refused:
        obeyed(schema, "json")
    assert refused.value.field == field
    assert named in str(refused.value)


@pytest.mark.parametrize(
    "pattern", ["a+", "^a$", r"\^\$", "[$^]", r"[\]^]", r"\d\w\s\n\x41", r"\.\-\/", "é", "[^a]", "(a|b)"]
)
def test_patterns_that_are_obeyed(pattern: str) -> None:
    """Anchors at the ends, escapes that mean something, classes with anything in them."""
    check_pattern(pattern, "regex")


@pytest.mark.parametrize(
    "pattern", ["a^b", "^^a", "a$b", "$a", "(^a)", r"\Aa", r"a\Z", r"[\q]", r"\x1f0", r"[\^a]", "a\0b"]
)
def test_patterns_that_would_be_read_otherwise(pattern: str) -> None:
    """They are refused; a zero character would end the process that compiles it."""
    with pytest.raises(InvalidRequest) as refused:
        check_pattern(pattern, "regex")
    assert refused.value.field == "regex"


@pytest.mark.parametrize(
    ("tag", "field", "named"),
    [
        ({"type": "frob"}, "tag.type", "'frob'"),
        ({}, "tag.type", "''"),
        ({"type": ["tag"]}, "tag.type", "['tag']"),
        ({"type": "const_string", "value": "a", "bogus": 1}, "tag", "'bogus'"),
        (
            {"type": "json_schema", "json_schema": {"type": "object", "frob": 1}},
            "tag.json_schema",
            "'frob'",
        ),
        ({"type": "json_schema", "json_schema": {"maxLength": 1}}, "tag.json_schema", "'maxLength'"),
        ({"type": "regex", "pattern": "a^b"}, "tag.pattern", "'a^b'"),
        (
            {"type": "sequence", "elements": [{"type": "any_text"}, {"type": "regex", "pattern": r"\A"}]},
            "tag.elements[1].pattern",
            "A'",
        ),
        (
            {"type": "triggered_tags", "triggers": ["<"], "tags": [{"begin": "<", "end": ">", "x": 1}]},
            "tag.tags[0]",
            "'x'",
        ),
        ({"type": "tag", "begin": "<", "content": {"type": "x"}, "end": ">"}, "tag.content.type", "'x'"),
        ({"type": "or", "elements": ["a"]}, "tag.elements[0]", "'a'"),
    ],
)
def test_tags_with_something_that_is_not_obeyed(tag: Any, field: str, named: str) -> None:
    """Unknown formats and fields, and what is in their schemas and patterns, with the path to it."""
    with pytest.raises(InvalidRequest) as refused:
        obeyed_tag(tag, "tag")
    assert refused.value.field == field
    assert named in str(refused.value)


def test_a_usual_tag() -> None:
    """Text with calls of tools in it is let through."""
    call = {"begin": "<f>", "content": {"type": "json_schema", "json_schema": INTEGER}, "end": "</f>"}
    obeyed_tag(
        {"type": "triggered_tags", "triggers": ["<f"], "tags": [call], "stop_after_first": True}, "tag"
    )
