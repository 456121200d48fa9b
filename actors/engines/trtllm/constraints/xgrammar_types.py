"""A type beside alternatives, or beside a reference: xgrammar passes over it, so it is said inside of them.

What comes of it means the same: a value of the type that one of them lets through is one that such an
alternative of that type lets through. The frontend's own schema for required tools is written like that.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any
from urllib.parse import unquote

from actors.engines.grammars.limits import MOST_CHAINED
from actors.engines.grammars.plain import as_list, as_object
from actors.engines.grammars.schemas import inner_schemas
from protocols.errors import InvalidRequest

_COMBINED = frozenset({"anyOf", "oneOf", "allOf"})
# The first of them is what xgrammar follows.
_RULING = _COMBINED | {"$ref", "enum", "const"}


def with_types_inside(schema: Any, field: str) -> Any:
    """A copy of a schema that `check_schema` let through.

    Raises InvalidRequest for an alternative of another type, with the path to it.
    """
    inside = deepcopy(schema)
    _move(inside, schema, field)
    return inside


def names_of(types: Any) -> list[Any]:
    """The value of a ``type``, which may be one name or several."""
    return as_list(types) or ([] if types is None else [types])


def _move(schema: Any, document: Any, field: str) -> None:
    """Outermost first: an alternative may have alternatives."""
    members = as_object(schema) or {}
    ruling = next((keyword for keyword in members if keyword in _RULING), "")
    if "type" in members and ruling in _COMBINED:
        _hand_down(members, ruling, field)
    elif "type" in members and ruling == "$ref" and _leads_to(members, document):
        del members["type"]
    for keyword, value in members.items():
        for _, rest, inner in inner_schemas(keyword, value):
            _move(inner, document, f"{field}.{keyword}{rest}")


def _hand_down(members: dict[str, Any], ruling: str, field: str) -> None:
    alternatives = as_list(members[ruling])
    if alternatives is None:
        return
    types = members.pop("type")
    for at, alternative in enumerate(alternatives):
        alternatives[at] = _typed(alternative, types, f"{field}.{ruling}[{at}]")


def _typed(schema: Any, types: Any, field: str) -> Any:
    members = as_object({} if schema is True else schema)
    if members is None:
        return schema
    if not _is_within(members.get("type"), types):
        allowed = (
            f"only what the 'type' beside the alternatives allows ({', '.join(map(str, names_of(types)))})"
        )
        raise InvalidRequest(f"{field}.type", members["type"], allowed)
    return {"type": types, **members}


def _is_within(inner: Any, outer: Any) -> bool:
    """Also what says nothing of its type."""
    known = names_of(outer)
    return all(name in known or (name == "integer" and "number" in known) for name in names_of(inner))


def _leads_to(members: dict[str, Any], document: Any) -> bool:
    """Whether what is referred to is of this type by its own word."""
    target = members
    for _ in range(MOST_CHAINED):
        target = as_object(_found(target["$ref"], document)) or {}
        if "type" in target or "$ref" not in target:
            break
    return "type" in target and _is_within(target["type"], members["type"])


def _found(reference: Any, document: Any) -> Any:
    """What `check_references` has seen there."""
    found = document
    for part in unquote(str(reference)).split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        items = as_list(found)
        found = found[key] if items is None else items[int(key)]
    return found
