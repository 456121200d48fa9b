"""JSON schemas for xgrammar: what it would pass over is refused by name.

It takes the first keyword that it likes and leaves out what stands beside it, often without a word. These
rules were found by asking xgrammar 0.1.32, TensorRT-LLM's, for answers that a schema forbids. What it makes
narrower than the schema is allowed: such answers are still valid.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from actors.engines.grammars.plain import as_list, as_object, write_json
from actors.engines.grammars.schemas import ASSERTIONS, inner_schemas
from actors.engines.trtllm.constraints.xgrammar_patterns import check_pattern
from actors.engines.trtllm.constraints.xgrammar_types import names_of, with_types_inside
from protocols.errors import InvalidRequest

_UNKNOWN = frozenset({"multipleOf", "additionalItems"})
# It follows one of them, and nothing beside it. A "type" beside values is checked here; one beside the others
# is said inside of them, where that can be.
_VALUES = frozenset({"enum", "const"})
_ALONE = _VALUES | {"$ref", "anyOf", "oneOf", "allOf"}
_OF_STRINGS = frozenset({"pattern", "format", "minLength", "maxLength"})
_OF_NUMBERS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_OF_OBJECTS = frozenset({"required", "minProperties", "maxProperties", "patternProperties"})
_OF_ARRAYS = frozenset({"minItems", "maxItems"})
# Without a "type" it looks at these, and then takes the type for granted.
_TELL_OBJECTS = frozenset({"properties", "additionalProperties"})
_TELL_ARRAYS = frozenset({"items", "prefixItems"})
_TWICE = "the back-end xgrammar could write one name several times"
_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
    "array": list,
    "object": dict,
}


def obeyed(schema: Any, field: str) -> Any:
    """What xgrammar is given for a schema that `check_schema` let through; the same is meant by it.

    Raises InvalidRequest with the path of a keyword.
    """
    inside = with_types_inside(schema, field)
    _check(inside, field)
    return inside


def _check(schema: Any, field: str) -> None:
    members = as_object(schema)
    if members is None:
        return
    _check_alone(members, field)
    _check_typed(members, field)
    _check_strings(members, field)
    _check_objects(members, field)
    for keyword, value in members.items():
        where = f"{field}.{keyword}"
        if keyword in _UNKNOWN or (keyword == "items" and as_list(value) is not None):
            raise InvalidRequest(field, keyword, "only keywords that the back-end xgrammar obeys")
        if keyword == "allOf" and len(as_list(value) or []) > 1:
            raise InvalidRequest(where, value, "one schema: the back-end xgrammar does not obey several")
        for _, rest, inner in inner_schemas(keyword, value):
            _check(inner, where + rest)


def _check_alone(members: dict[str, Any], field: str) -> None:
    ruling = [keyword for keyword in members if keyword in _ALONE]
    if not ruling:
        return
    first = ruling[0]
    for keyword in members:
        if keyword in ASSERTIONS and keyword != first and not (keyword == "type" and first in _VALUES):
            raise _beside(field, keyword, first)
    if first in _VALUES:
        values = [members["const"]] if first == "const" else as_list(members["enum"]) or []
        _check_values(values, members.get("type"), f"{field}.{first}")


def _check_values(values: Iterable[Any], types: Any, field: str) -> None:
    """xgrammar does not look at a type beside values."""
    names = names_of(types)
    for value in values:
        if names and not any(_is_of(value, name) for name in names):
            raise InvalidRequest(field, value, f"values of the type beside it ({', '.join(map(str, names))})")


def _is_of(value: Any, name: Any) -> bool:
    if isinstance(value, bool):
        return bool(name == "boolean")
    if isinstance(value, float) and value.is_integer() and name == "integer":
        return True
    return isinstance(value, _TYPES.get(name, ()) if isinstance(name, str) else ())


def _check_typed(members: dict[str, Any], field: str) -> None:
    """What is said of one type only, xgrammar reads only where it is told the type."""
    if "type" in members:
        return
    untold = _OF_STRINGS | _OF_NUMBERS
    untold |= frozenset() if _TELL_OBJECTS & members.keys() else _OF_OBJECTS
    untold |= frozenset() if _TELL_ARRAYS & members.keys() else _OF_ARRAYS
    for keyword in members:
        if keyword in untold:
            raise InvalidRequest(
                field, keyword, "a 'type' beside it: the back-end xgrammar obeys it with one only"
            )


def _check_strings(members: dict[str, Any], field: str) -> None:
    """Of a format, a pattern and a length it obeys one: in this order, roughly."""
    ruling = [keyword for keyword in ("format", "pattern") if keyword in members]
    for keyword in members if ruling else ():
        if keyword in _OF_STRINGS and keyword != ruling[0]:
            raise _beside(field, keyword, ruling[0])
    if isinstance(members.get("pattern"), str):
        check_pattern(members["pattern"], f"{field}.pattern")


def _check_objects(members: dict[str, Any], field: str) -> None:
    properties = as_object(members.get("properties")) or {}
    _check_names(properties, as_list(members.get("required")) or [], field)
    if "patternProperties" in members:
        for keyword in ("properties", "required"):
            if keyword in members:
                raise _beside(field, keyword, "patternProperties")
        for pattern in as_object(members["patternProperties"]) or {}:
            check_pattern(pattern, f"{field}.patternProperties")
    more = members.get("additionalProperties", False)
    if properties and more is not False:
        allowed = f"false beside 'properties': {_TWICE}"
        raise InvalidRequest(f"{field}.additionalProperties", more, allowed)
    least = members.get("minProperties")
    if isinstance(least, int | float) and least > 1 and not properties:
        raise InvalidRequest(f"{field}.minProperties", least, f"at most 1 without 'properties': {_TWICE}")


def _check_names(properties: dict[str, Any], required: list[Any], field: str) -> None:
    for name in properties:
        if write_json(name) != f'"{name}"':
            allowed = "names that JSON writes as they are: the back-end xgrammar escapes none"
            raise InvalidRequest(f"{field}.properties", name, allowed)
    for name in required:
        if name not in properties:
            allowed = "names of 'properties': the back-end xgrammar obeys no others"
            raise InvalidRequest(f"{field}.required", name, allowed)


def _beside(field: str, keyword: str, ruling: str) -> InvalidRequest:
    return InvalidRequest(
        field, keyword, f"nothing beside {ruling!r}, which is all that xgrammar obeys there"
    )
