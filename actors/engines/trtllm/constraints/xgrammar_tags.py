"""Structural tags for xgrammar: their fields, and the schemas, patterns and grammars in them."""

from __future__ import annotations

from typing import Any

from actors.engines.grammars.plain import as_list, as_object
from actors.engines.grammars.schemas import check_schema
from actors.engines.trtllm.constraints.xgrammar_ends import check_ends
from actors.engines.trtllm.constraints.xgrammar_patterns import check_pattern
from actors.engines.trtllm.constraints.xgrammar_schemas import obeyed
from protocols.errors import InvalidRequest

# xgrammar passes over every field that it does not know. Formats of later versions than TensorRT-LLM's are
# here, too: whether they are known is seen when they are compiled.
_TAGS = frozenset({"at_least_one", "stop_after_first", "tags"})
_FIELDS: dict[str, frozenset[str]] = {
    "const_string": frozenset({"value"}),
    "json_schema": frozenset({"json_schema", "style"}),
    "qwen_xml_parameter": frozenset({"json_schema"}),
    "any_text": frozenset({"excludes"}),
    "any_tokens": frozenset({"exclude_tokens"}),
    "exclude_token": frozenset({"exclude_tokens"}),
    "token": frozenset({"token"}),
    "grammar": frozenset({"grammar"}),
    "regex": frozenset({"pattern", "excludes"}),
    "sequence": frozenset({"elements"}),
    "or": frozenset({"elements"}),
    "tag": frozenset({"begin", "content", "end"}),
    "triggered_tags": _TAGS | {"triggers", "excludes"},
    "tags_with_separator": _TAGS | {"separator"},
    "optional": frozenset({"content"}),
    "star": frozenset({"content"}),
    "plus": frozenset({"content"}),
    "repeat": frozenset({"content", "min", "max"}),
}
# Where formats stand in other formats.
_INNER = ("content", "elements", "tags")


def obeyed_tag(tag: dict[str, Any], field: str, default_type: str = "") -> dict[str, Any]:
    """What xgrammar is given for it. Raises InvalidRequest with the path of what would not be obeyed."""
    kind = tag.get("type", default_type)
    fields = _FIELDS.get(kind) if isinstance(kind, str) else None
    if fields is None:
        raise InvalidRequest(f"{field}.type", kind, f"one of {', '.join(_FIELDS)}")
    for name in tag:
        if name != "type" and name not in fields:
            raise InvalidRequest(field, name, f"only {', '.join(('type', *sorted(fields)))}")
    return {name: _obeyed_part(name, value, f"{field}.{name}") for name, value in tag.items()}


def _obeyed_part(name: str, value: Any, field: str) -> Any:
    if name == "json_schema":
        check_schema(value, field)
        return obeyed(value, field)
    if name == "pattern" and isinstance(value, str):
        check_pattern(value, field)
    elif name == "grammar" and isinstance(value, str):
        check_ends(value, field, value)
    elif name in _INNER:
        return _obeyed_inner(value, field, "tag" if name == "tags" else "")
    return value


def _obeyed_inner(value: Any, field: str, default_type: str) -> Any:
    one, several = as_object(value), as_list(value)
    if one is not None:
        return obeyed_tag(one, field, default_type)
    if several is None:
        return value
    return [_obeyed_item(item, f"{field}[{at}]", default_type) for at, item in enumerate(several)]


def _obeyed_item(item: Any, field: str, default_type: str) -> dict[str, Any]:
    inner = as_object(item)
    if inner is None:
        raise InvalidRequest(field, item, "an object with a type")
    return obeyed_tag(inner, field, default_type)
