"""Structural tags: text with places in it that have a form, such as calls of tools.

The frontend's form (xgrammar's) is ``{"type": "structural_tag", "format": {...}}``; the older one names
structures and triggers. Both may come as JSON text.
"""

from __future__ import annotations

from typing import Any

from actors.engines.grammars.limits import check_depth
from actors.engines.grammars.tag_formats import TagFormats
from actors.engines.grammars.tag_nodes import Node
from actors.engines.grammars.vocabulary import Vocabulary
from protocols.errors import InvalidRequest
from protocols.strict_json import read_json


def structural_tag_source(constraint: object, field: str, vocabulary: Vocabulary) -> str:
    """A grammar of llguidance. Raises InvalidRequest with the path of what it cannot express."""
    return TagFormats(vocabulary).source(_format(constraint, field))


def read_tag(constraint: object, field: str) -> dict[str, Any]:
    """The format, in the newer form, whichever was written. Raises InvalidRequest."""
    return _format(constraint, field).plain


def _format(constraint: object, field: str) -> Node:
    value = constraint
    if isinstance(constraint, str):
        try:
            value = read_json(constraint)
        except (ValueError, RecursionError) as exc:
            raise InvalidRequest(field, constraint, "a structural tag, also as JSON text") from exc
    check_depth(value, field)
    root = Node(value, field, "structural_tag")
    if root.type != "structural_tag":
        raise root.refusal("type", "structural_tag")
    if root.get("structures") is not None:
        return _triggered(root)
    root.only("format")
    return root.child("format")


def _triggered(root: Node) -> Node:
    """The older form in terms of the newer one."""
    root.only("structures", "triggers")
    tags: list[dict[str, Any]] = []
    for structure in root.children("structures"):
        structure.only("begin", "schema", "end")
        content = {"type": "json_schema", "json_schema": _schema(structure)}
        tags.append({"begin": structure.text("begin"), "content": content, "end": structure.text("end")})
    triggers = list(root.texts("triggers", is_needed=True))
    return Node({"type": "triggered_tags", "triggers": triggers, "tags": tags}, root.field)


def _schema(structure: Node) -> Any:
    schema = structure.get("schema")
    if not isinstance(schema, str):
        return schema
    try:
        return read_json(schema)
    except (ValueError, RecursionError) as exc:
        raise structure.refusal("schema", "a JSON schema, also as text") from exc
