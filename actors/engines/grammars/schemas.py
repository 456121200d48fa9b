"""JSON schemas: which keywords are obeyed. All others are refused by name.

llguidance refuses the keywords it knows and cannot obey, and passes over those it has never heard of.
A keyword that changes nothing would be a silent lie, so they are checked here.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import llguidance

from actors.engines.grammars.complaints import brief
from actors.engines.grammars.limits import MOST_DIGITS, MOST_MULTIPLE, MOST_NUMBER, check_depth
from actors.engines.grammars.plain import as_list, as_object, write_json
from actors.engines.grammars.references import ROOT, Place, below, check_references
from protocols.errors import InvalidRequest
from protocols.strict_json import read_json

# Obeyed. `test_every_keyword_is_obeyed` has an example for each.
_ASSERTIONS = frozenset(
    {
        "type", "enum", "const", "format", "pattern", "minLength", "maxLength",
        "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
        "required", "minItems", "maxItems", "minProperties", "maxProperties", "$ref",
    }
)  # fmt: skip
# Obeyed, and with schemas inside: under names, in a list, or one (or a list, or a boolean).
_DEFINITIONS = frozenset({"$defs", "definitions"})
_NAMED = frozenset({"properties", "patternProperties"}) | _DEFINITIONS
_LISTED = frozenset({"anyOf", "allOf", "oneOf", "prefixItems"})
_SINGLE = frozenset({"items", "additionalItems", "additionalProperties"})
# They say nothing about which values are valid. "x-..." is for everybody's own use and means nothing here.
_ANNOTATIONS = frozenset(
    {
        "title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly",
        "$schema", "$id", "$comment", "contentEncoding", "contentMediaType", "discriminator",
    }
)  # fmt: skip
ASSERTIONS = _ASSERTIONS | (_NAMED - _DEFINITIONS) | _LISTED | _SINGLE
"""Keywords that say which values are valid."""
_KNOWN = ASSERTIONS | _DEFINITIONS | _ANNOTATIONS
_NUMBERS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_OWN = "x-"
# llguidance reads its options there; they are the operator's.
_OPTIONS = "x-guidance"

# llguidance would go on with what it cannot obey, or take oneOf for anyOf.
_STRICT: Any = {"lenient": False, "coerce_one_of": False}


def read_schema(constraint: object, field: str) -> Any:
    """The schema, from JSON text or as it is: an object or a boolean. Raises InvalidRequest."""
    schema: Any = constraint
    if isinstance(constraint, str):
        try:
            schema = read_json(constraint)
        except (ValueError, RecursionError) as exc:
            raise InvalidRequest(field, constraint, "a JSON schema, also as text") from exc
    if as_object(schema) is None and not isinstance(schema, bool):
        raise InvalidRequest(field, constraint, "a JSON schema: an object, or text of one")
    check_schema(schema, field)
    return schema


def check_schema(schema: Any, field: str) -> None:
    """Raises InvalidRequest for a keyword that would not be obeyed, with the path to it.

    And for numbers and references that llguidance could not cope with.
    """
    check_depth(schema, field)
    places: dict[str, Place] = {}
    _check(schema, field, ROOT, places)
    check_references(places, field)


def schema_source(schema: Any, field: str) -> str:
    """A grammar of llguidance. Raises InvalidRequest where llguidance refuses the schema."""
    try:
        text = write_json(schema)
        # It wants its options in an object.
        source = llguidance.LLMatcher.grammar_from_json_schema(
            "{}" if schema is True else text, None, _STRICT
        )
    except ValueError as exc:
        raise InvalidRequest(field, schema, f"a JSON schema ({brief(str(exc))})") from exc
    return source


def _check(schema: Any, field: str, pointer: str, places: dict[str, Place]) -> None:
    """Note the schema, and all in it, under their JSON pointers."""
    members = as_object(schema) or {}
    parts: list[str] = []
    for keyword, value in members.items():
        where = f"{field}.{keyword}"
        if keyword == _OPTIONS or (keyword not in _KNOWN and not keyword.startswith(_OWN)):
            raise InvalidRequest(field, keyword, "only keywords of JSON Schema that are obeyed here")
        if keyword in _NUMBERS:
            _check_number(keyword, value, where)
        for inside, rest, inner in inner_schemas(keyword, value):
            at = below(pointer, keyword, *inside)
            _check(inner, where + rest, at, places)
            if keyword not in _DEFINITIONS:
                parts.append(at)
    places[pointer] = Place(members.get("$ref"), tuple(parts))


def _check_number(keyword: str, value: Any, field: str) -> None:
    """llguidance makes an expression of it that grows with the number; what is no number it refuses."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    most = MOST_MULTIPLE if keyword == "multipleOf" else MOST_NUMBER
    _, digits, exponent = Decimal(str(value)).as_tuple()
    if not isinstance(exponent, int) or len(digits) - min(exponent, 0) > MOST_DIGITS or abs(value) > most:
        raise InvalidRequest(field, value, f"at most {most:g}, with at most {MOST_DIGITS} digits")


def inner_schemas(keyword: str, value: Any) -> list[tuple[tuple[str, ...], str, Any]]:
    """Schemas below a keyword, each with the rest of its pointer, and of its path as it is shown."""
    if keyword in _NAMED:
        return [((name,), f".{name}", inner) for name, inner in (as_object(value) or {}).items()]
    items = as_list(value)
    if keyword in _LISTED | _SINGLE and items is not None:
        return [((str(index),), f"[{index}]", inner) for index, inner in enumerate(items)]
    return [((), "", value)] if keyword in _SINGLE else []
