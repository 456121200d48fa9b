"""JSON schemas: what is accepted is obeyed, and what is not obeyed is refused by name."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.errors import InvalidRequest

if TYPE_CHECKING:
    from tests.actors.engines.grammars.world import Guide

FIELD = "sampling_options.guided_decoding.json"


def is_valid(schema: Any, value: Any) -> bool:
    """A plain reading of the keywords that `schemas()` uses."""
    if "anyOf" in schema:
        return any(is_valid(one, value) for one in schema["anyOf"])
    if "enum" in schema:
        return any(type(one) is type(value) and one == value for one in schema["enum"])
    match schema["type"]:
        case "integer":
            return isinstance(value, int) and schema["minimum"] <= value <= schema["maximum"]
        case "boolean":
            return isinstance(value, bool)
        case "null":
            return value is None
        case "string":
            return isinstance(value, str) and len(value) <= schema["maxLength"]
        case "array":
            is_sized = isinstance(value, list) and schema["minItems"] <= len(value) <= schema["maxItems"]
            return is_sized and all(is_valid(schema["items"], item) for item in value)
        case _:
            is_named = isinstance(value, dict) and set(schema["required"]) <= set(value)
            inside = schema["properties"]
            return is_named and all(name in inside and is_valid(inside[name], value[name]) for name in value)


@st.composite
def integers(draw: st.DrawFn) -> Any:
    low, high = sorted(draw(st.tuples(st.integers(-2000, 2000), st.integers(-2000, 2000))))
    return {"type": "integer", "minimum": low, "maximum": high}


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> Any:
    properties = draw(st.dictionaries(st.text('abc"\\é/', max_size=4), inner, max_size=4))
    required = [name for name in properties if draw(st.booleans())]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


@st.composite
def arrays(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> Any:
    low = draw(st.integers(0, 2))
    return {"type": "array", "items": draw(inner), "minItems": low, "maxItems": low + draw(st.integers(0, 2))}


SCALARS = st.none() | st.booleans() | st.integers(-99, 99) | st.text('ab"\n😀', max_size=4)
LEAVES = (
    integers()
    | st.just({"type": "boolean"})
    | st.just({"type": "null"})
    | st.integers(0, 8).map(lambda most: {"type": "string", "maxLength": most})
    | st.lists(SCALARS, min_size=1, max_size=4).map(lambda values: {"enum": values})
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: (
        objects(inner)
        | arrays(inner)
        | st.lists(inner, min_size=1, max_size=3).map(lambda several: {"anyOf": several})
    ),
    max_leaves=6,
)


@given(schema=SCHEMAS, seed=st.integers(0, 2**32))
@settings(max_examples=80)
def test_every_answer_is_valid(guide: Guide, schema: Any, seed: int) -> None:
    """Whatever the masks let through to its end is JSON, and valid by the schema."""
    text = guide.walk(guide.compile("json", schema), random.Random(seed))
    assert text is not None
    assert is_valid(schema, json.loads(text)), text


# What each keyword lets through, and what it does not.
OBEYED: dict[str, tuple[Any, str, str]] = {
    "type": ({"type": "string"}, '"a"', "1"),
    "type, several": ({"type": ["null", "integer"]}, "null", '"a"'),
    "enum": ({"enum": ["a", 1]}, "1", "2"),
    "const": ({"const": {"a": 1}}, '{"a":1}', '{"a":2}'),
    "format": ({"type": "string", "format": "date"}, '"2024-01-31"', '"tomorrow"'),
    "pattern": ({"type": "string", "pattern": "^a+$"}, '"aa"', '"ab"'),
    "minLength": ({"type": "string", "minLength": 2}, '"aa"', '"a"'),
    "maxLength": ({"type": "string", "maxLength": 1}, '"é"', '"aa"'),
    "minimum": ({"type": "integer", "minimum": 5}, "5", "4"),
    "maximum": ({"type": "integer", "maximum": 5}, "5", "6"),
    "exclusiveMinimum": ({"type": "integer", "exclusiveMinimum": 5}, "6", "5"),
    "exclusiveMaximum": ({"type": "integer", "exclusiveMaximum": 5}, "4", "5"),
    "multipleOf": ({"type": "integer", "multipleOf": 7}, "14", "15"),
    "required": ({"type": "object", "required": ["a"]}, '{"a":1}', '{"b":1}'),
    "minItems": ({"type": "array", "minItems": 1}, "[1]", "[]"),
    "maxItems": ({"type": "array", "maxItems": 1}, "[1]", "[1,1]"),
    "minProperties": ({"type": "object", "minProperties": 1}, '{"a":1}', "{}"),
    "maxProperties": ({"type": "object", "maxProperties": 1}, '{"a":1}', '{"a":1,"b":1}'),
    "$ref": ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}}, "null", "1"),
    "definitions": ({"$ref": "#/definitions/a", "definitions": {"a": {"type": "null"}}}, "null", "1"),
    "properties": ({"type": "object", "properties": {"a": {"type": "null"}}}, '{"a":null}', '{"a":1}'),
    "patternProperties": (
        {"type": "object", "patternProperties": {"^a": {"type": "null"}}},
        '{"ab":null}',
        '{"ab":1}',
    ),
    "additionalProperties": ({"type": "object", "additionalProperties": False}, "{}", '{"a":1}'),
    "additionalProperties, a schema": (
        {"type": "object", "additionalProperties": {"type": "null"}},
        '{"a":null}',
        '{"a":1}',
    ),
    "items": ({"type": "array", "items": {"type": "null"}}, "[null]", "[1]"),
    "prefixItems": ({"type": "array", "prefixItems": [{"type": "null"}]}, "[null,1]", "[1]"),
    "additionalItems": (
        {"type": "array", "items": [{"type": "null"}], "additionalItems": {"type": "boolean"}},
        "[null,true]",
        "[null,1]",
    ),
    "anyOf": ({"anyOf": [{"type": "null"}, {"type": "boolean"}]}, "true", "1"),
    "oneOf": ({"oneOf": [{"type": "null"}, {"type": "boolean"}]}, "true", "1"),
    "allOf": ({"allOf": [{"type": "integer"}, {"minimum": 3}]}, "3", "2"),
}


@pytest.mark.parametrize("keyword", OBEYED)
def test_every_keyword_is_obeyed(guide: Guide, keyword: str) -> None:
    """Each keyword that is accepted lets right values through and holds wrong ones back."""
    schema, right, wrong = OBEYED[keyword]
    grammar = guide.compile("json", schema)
    assert guide.accepts(grammar, right)
    assert not guide.accepts(grammar, wrong)


UNOBEYED: dict[str, tuple[Any, str, str]] = {
    "not": ({"not": {"type": "string"}}, "", "not"),
    "nullable": ({"properties": {"a": {"type": "string", "nullable": True}}}, ".properties.a", "nullable"),
    "uniqueItems": ({"items": [{"uniqueItems": True}]}, ".items[0]", "uniqueItems"),
    "if": ({"anyOf": [{"type": "null"}, {"if": {}}]}, ".anyOf[1]", "if"),
    "a typing error": ({"$defs": {"a": {"tpye": "null"}}}, ".$defs.a", "tpye"),
    "in what may be added": ({"additionalProperties": {"contains": {}}}, ".additionalProperties", "contains"),
    "options of the library": ({"x-guidance": {"lenient": True}, "foo": 1}, "", "x-guidance"),
    "in a text": ('{"type": "object", "unevaluatedProperties": false}', "", "unevaluatedProperties"),
}


@pytest.mark.parametrize("name", UNOBEYED)
def test_what_is_not_obeyed_is_refused_by_name(guide: Guide, name: str) -> None:
    """A keyword that would change nothing is refused with the path to it."""
    schema, path, keyword = UNOBEYED[name]
    with pytest.raises(InvalidRequest) as refused:
        guide.compile("json", schema)
    assert (refused.value.field, refused.value.value) == (FIELD + path, keyword)


def test_annotations_change_nothing(guide: Guide) -> None:
    """Titles, examples, defaults and keywords of one's own are no reason to refuse a schema."""
    notes = {"title": "t", "description": "d", "examples": [{"not": 1}], "default": {"if": 2}, "x-own": 3}
    schema = {"type": "object", "properties": {"not": {"type": "null", **notes}}, "$comment": "c", **notes}
    assert guide.accepts(guide.compile("json", schema), '{"not":null}')


WRONG: dict[str, Any] = {
    "an unknown type": {"type": "objekt"},
    "no JSON": "{not json",
    "not a number": '{"minimum": NaN}',
    "JSON, and no schema": "[1]",
    "no schema": 3,
    "nothing fits": {"type": "integer", "minimum": 3, "maximum": 1},
    "false": False,
    "a reference to nowhere": {"$ref": "#/$defs/a"},
    "a reference to the world": {"$ref": "http://localhost:9/schema"},
    "a broken pattern": {"type": "string", "pattern": "[a-"},
    "overlapping oneOf": {"oneOf": [{"type": "string"}, {"type": "string"}]},
    "an unknown format": {"type": "string", "format": "bogus"},
}


@pytest.mark.parametrize("name", WRONG)
def test_what_makes_no_sense_is_refused(guide: Guide, name: str) -> None:
    """A schema that nothing can be made of is refused with the name of its field."""
    with pytest.raises(InvalidRequest) as refused:
        guide.compile("json", WRONG[name])
    assert refused.value.field == FIELD


def test_json_object(guide: Guide) -> None:
    """Any object, and nothing but an object: that is what the frontend asks for as json_object."""
    grammar = guide.compile("json", {"type": "object"})
    assert guide.accepts(grammar, '{"a": [1, {"b": null}]}')
    assert not guide.begins(grammar, "[")


def test_properties_come_in_the_order_of_the_schema(guide: Guide) -> None:
    """The order in which a schema names its properties is the order they are written in."""
    one = {
        "type": "object",
        "properties": {"b": {"type": "null"}, "a": {"type": "null"}},
        "required": ["a", "b"],
    }
    grammar = guide.compile("json", one)
    assert guide.accepts(grammar, '{"b":null,"a":null}')
    assert not guide.begins(grammar, '{"a"')


def test_a_text_says_the_same_as_the_object(guide: Guide) -> None:
    """A schema as JSON text is read as the schema."""
    assert guide.accepts(guide.compile("json", '{"enum": ["é"]}'), '"é"')


# Places that a reference could lead to, where nothing was checked.
UNCHECKED: dict[str, Any] = {
    "a default": {"$ref": "#/default", "default": {"type": "string", "nullable": True}},
    "one's own keyword": {"items": {"$ref": "#/x-a"}, "x-a": {"if": {}}},
    "an example": {"$ref": "#/examples/0", "examples": [{"type": "null"}]},
    "a constant": {"properties": {"a": {"const": {"not": {}}}, "b": {"$ref": "#/properties/a/const"}}},
    "in other letters": {"$ref": "#/%64efault", "default": {"type": "null"}},
    "by its name": {"$id": "http://a/b", "$ref": "http://a/b#/default", "default": {"type": "null"}},
    "a part of a schema": {"$ref": "#/$defs", "$defs": {"type": {"type": "null"}}},
    "no text": {"$ref": 1},
    "in a definition that nobody needs": {"$defs": {"a": {"$ref": "#/title"}}, "title": {}},
}


@pytest.mark.parametrize("name", UNCHECKED)
def test_references_lead_to_schemas_that_were_checked(guide: Guide, name: str) -> None:
    """What is said elsewhere could be anything; a reference to it is refused."""
    with pytest.raises(InvalidRequest, match="to a schema in the same document") as refused:
        guide.compile("json", UNCHECKED[name])
    assert refused.value.field == FIELD


REFERENCES: dict[str, tuple[Any, str, str]] = {
    "to the whole": (
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "additionalProperties": False},
        '{"a":{"a":{}}}',
        '{"a":1}',
    ),
    "to a property": (
        {"properties": {"a": {"type": "null"}, "b": {"$ref": "#/properties/a"}}, "required": ["b"]},
        '{"a":null,"b":null}',
        '{"b":1}',
    ),
    "with signs in its name": ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "null"}}}, "null", "1"),
    "in other letters": ({"$ref": "#/$defs/%C3%A9", "$defs": {"é": {"type": "null"}}}, "null", "1"),
    "to one of a list": ({"anyOf": [{"const": 1}, {"items": {"$ref": "#/anyOf/0"}}]}, "[1]", "[2]"),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_references_are_followed(guide: Guide, name: str) -> None:
    """To any schema of the document, however it is spelled."""
    schema, right, wrong = REFERENCES[name]
    grammar = guide.compile("json", schema)
    assert guide.accepts(grammar, right)
    assert not guide.accepts(grammar, wrong)


def chain(links: int) -> Any:
    """So many references, each in what the one before leads to."""
    names = [f"#/$defs/{at}" for at in range(links)]
    inner: dict[str, Any] = {f"{at}": {"items": {"$ref": name}} for at, name in enumerate(names[1:])}
    return {"$ref": names[0], "$defs": {**inner, f"{links - 1}": {"type": "null"}}}


def test_chains_of_references_are_bounded(guide: Guide) -> None:
    """64 in one another are followed, 65 refused; many beside one another are no chain."""
    assert guide.accepts(guide.compile("json", chain(64)), "[[]]")
    with pytest.raises(InvalidRequest, match="at most 64 references that lead to one another"):
        guide.compile("json", chain(65))
    many = {f"{at}": {"const": at} for at in range(200)}
    beside = {"anyOf": [{"$ref": f"#/$defs/{at}"} for at in many], "$defs": many}
    assert guide.accepts(guide.compile("json", beside), "199")


NUMBERS: dict[str, tuple[Any, str]] = {
    "a large divisor": ({"type": "integer", "multipleOf": 99_999_999}, ".multipleOf"),
    "a fine divisor": ({"items": [{"type": "number", "multipleOf": 1e-30}]}, ".items[0].multipleOf"),
    "a large bound": ({"type": "integer", "minimum": -(10**19)}, ".minimum"),
    "a larger bound": ({"anyOf": [{"type": "number", "maximum": 1e308}]}, ".anyOf[0].maximum"),
    "a fine bound": ({"type": "number", "exclusiveMinimum": 1e-320}, ".exclusiveMinimum"),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_are_bounded(guide: Guide, name: str) -> None:
    """The library's work grows with the size of a number and with its digits."""
    schema, path = NUMBERS[name]
    with pytest.raises(InvalidRequest, match="with at most 20 digits") as refused:
        guide.compile("json", schema)
    assert refused.value.field == FIELD + path
