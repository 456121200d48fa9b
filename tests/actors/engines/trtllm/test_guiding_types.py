"""A type beside alternatives: xgrammar does not look at it, so it is said inside of them, or refused."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from actors.engines.grammars.schemas import check_schema
from actors.engines.trtllm.constraints.xgrammar_schemas import obeyed
from actors.engines.trtllm.constraints.xgrammar_tags import obeyed_tag
from protocols.errors import InvalidRequest
from tests.actors.engines.trtllm.tool_schemas import NAMED, NAMED_WITHOUT_PARAMETERS, REQUIRED

INTEGER: dict[str, Any] = {"type": "integer"}
STRING: dict[str, Any] = {"type": "string"}
TO_AN_OBJECT = {"$ref": "#/$defs/x"}
AN_OBJECT = {"$defs": {"x": {"type": "object"}}}


def given_for(schema: Any) -> Any:
    check_schema(schema, "json")
    return obeyed(schema, "json")


def test_the_frontends_schema_for_required_tools() -> None:
    """Every tool's call is an object; nothing else of it changes."""
    found = given_for(REQUIRED)
    assert "type" not in found["items"]
    calls = [{"type": "object", **call} for call in REQUIRED["items"]["anyOf"]]
    assert found == {**REQUIRED, "items": {"anyOf": calls}}


@pytest.mark.parametrize("schema", [NAMED, NAMED_WITHOUT_PARAMETERS])
def test_the_frontends_schema_for_a_named_tool(schema: Any) -> None:
    """It is the tool's own, and stays as it is."""
    assert given_for(schema) == schema


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (
            {"type": "string", "oneOf": [{"const": "a"}, {"enum": ["b", "c"]}]},
            {"oneOf": [{"type": "string", "const": "a"}, {"type": "string", "enum": ["b", "c"]}]},
        ),
        (
            {"type": "object", "oneOf": [{"properties": {"a": INTEGER}, "required": ["a"]}]},
            {"oneOf": [{"type": "object", "properties": {"a": INTEGER}, "required": ["a"]}]},
        ),
        ({"type": "integer", "anyOf": [{"minimum": 0}]}, {"anyOf": [{"type": "integer", "minimum": 0}]}),
        ({"type": "integer", "allOf": [{"minimum": 0}]}, {"allOf": [{"type": "integer", "minimum": 0}]}),
        ({"type": "object", "anyOf": [True, {}]}, {"anyOf": [{"type": "object"}, {"type": "object"}]}),
        ({"type": ["string", "number"], "anyOf": [STRING, INTEGER]}, {"anyOf": [STRING, INTEGER]}),
        (
            {"type": "array", "anyOf": [{"oneOf": [{"items": INTEGER}]}]},
            {"anyOf": [{"oneOf": [{"type": "array", "items": INTEGER}]}]},
        ),
        ({"type": "object", **TO_AN_OBJECT, **AN_OBJECT}, {**TO_AN_OBJECT, **AN_OBJECT}),
        (
            {"type": "object", "anyOf": [TO_AN_OBJECT], **AN_OBJECT},
            {"anyOf": [TO_AN_OBJECT], **AN_OBJECT},
        ),
        (
            {"type": "object", "$ref": "#/$defs/a~1b", "$defs": {"a/b": TO_AN_OBJECT, **AN_OBJECT["$defs"]}},
            {"$ref": "#/$defs/a~1b", "$defs": {"a/b": TO_AN_OBJECT, **AN_OBJECT["$defs"]}},
        ),
        (
            {"anyOf": [INTEGER, {"type": "number", "$ref": "#/anyOf/0"}]},
            {"anyOf": [INTEGER, {"$ref": "#/anyOf/0"}]},
        ),
    ],
)  # fmt: skip
def test_a_type_goes_where_it_is_obeyed(schema: Any, expected: Any) -> None:
    """To each alternative that has none, however deep; one that has it already keeps its own."""
    asked = deepcopy(schema)
    assert given_for(schema) == expected
    assert schema == asked, "the caller's own is left as it was"


@pytest.mark.parametrize(
    ("schema", "field", "named"),
    [
        ({"type": "object", "anyOf": [{"type": "object"}, INTEGER]}, "json.anyOf[1].type", "object"),
        ({"type": "integer", "anyOf": [{"type": "number"}]}, "json.anyOf[0].type", "integer"),
        ({"type": "string", "oneOf": [{"const": "a"}, {"const": 1}]}, "json.oneOf[1].const", "string"),
        ({"type": "integer", **TO_AN_OBJECT, **AN_OBJECT}, "json", "'type'"),
        ({"type": "integer", "anyOf": [TO_AN_OBJECT], **AN_OBJECT}, "json.anyOf[0]", "'type'"),
        ({"type": "object", "$ref": "#/$defs/x", "$defs": {"x": {"minProperties": 1}}}, "json", "'type'"),
        ({"type": "object", "$ref": "#/$defs/x", "$defs": {"x": TO_AN_OBJECT}}, "json", "'type'"),
        ({"type": "object", "anyOf": [{"properties": {}}], "required": ["a"]}, "json", "'required'"),
        (
            {"items": {"type": "object", "anyOf": [{"$ref": "#/items", "minProperties": 1}]}},
            "json.items.anyOf[0]",
            "'minProperties'",
        ),
    ],
)
def test_a_type_that_cannot_be_said_inside(schema: Any, field: str, named: str) -> None:
    """An alternative of another type would be answered all the same: refused, with the path to it."""
    with pytest.raises(InvalidRequest) as refused:
        given_for(schema)
    assert refused.value.field == field
    assert named in str(refused.value)


def test_also_in_a_structural_tag() -> None:
    """Wherever a schema stands in it; the rest is given as it came."""
    schema = {"type": "object", "anyOf": [{"properties": {"a": INTEGER}}]}
    moved = {"anyOf": [{"type": "object", "properties": {"a": INTEGER}}]}
    tags = [{"begin": "<f>", "content": {"type": "json_schema", "json_schema": schema}, "end": "</f>"}]
    tag = {"type": "triggered_tags", "triggers": ["<f"], "tags": tags}
    content = {"type": "json_schema", "json_schema": moved}
    assert obeyed_tag(tag, "tag") == {**tag, "tags": [{**tags[0], "content": content}]}
