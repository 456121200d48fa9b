"""The committed facts about TensorRT-LLM's Python API, and what of them the double does not keep.

An entry that is ``exact`` was read at the very release: there the double has these fields and parameters, no
more and no others. For all other entries it has at least these, so that a call by keyword means the same.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

from pydantic import BaseModel

RELEASE = "1.3.0rc22"
FACTS = Path(__file__).with_suffix(".json")
EVENTS = ("created", "stored", "removed", "updated")
# In a shape: a key that is data itself.
ANY_KEY = "*"

Facts = dict[str, Any]


def read_facts() -> Facts:
    """Return the committed facts."""
    facts: Facts = json.loads(FACTS.read_text(encoding="utf-8"))
    return facts


def found_at(place: str) -> Any:
    """Import what stands at a dotted path. Raises ImportError, AttributeError."""
    module, _, name = place.rpartition(".")
    return getattr(importlib.import_module(module), name)


def broken_places(facts: Facts) -> Iterator[str]:
    """Yield the import paths that are missing, or where something else stands than at the first one."""
    first = found_at(facts["at"][0])
    for place in facts["at"][1:]:
        if found_at(place) is not first:
            yield f"{place} is not {facts['at'][0]}"


def broken_class(facts: Facts) -> Iterator[str]:
    """Yield what a class of the double lacks, or has too much of."""
    cls = found_at(facts["at"][0])
    yield from broken_places(facts)
    if "fields" in facts:
        yield from _broken_fields(cls, facts)
    if facts.get("slots") and not hasattr(cls, "__slots__"):
        yield f"{cls.__name__} has no slots"
    bases = [base.__name__ for base in cls.__mro__]
    yield from (f"{cls.__name__} is no {base}" for base in facts.get("bases", ()) if base not in bases)
    yield from (
        f"{cls.__name__}.{each} is no property"
        for each in facts.get("properties", ())
        if not _is_read(cls, each)
    )
    for name, method in facts.get("methods", {}).items():
        yield from _broken_signature(f"{cls.__name__}.{name}", getattr(cls, name, None), method)


def broken_function(facts: Facts) -> Iterator[str]:
    """Yield what a function of the double does otherwise."""
    yield from broken_places(facts)
    yield from _broken_signature(facts["at"][0], found_at(facts["at"][0]), facts)


def broken_enum(facts: Facts) -> Iterator[str]:
    """Yield members that are missing or have another value."""
    enum = found_at(facts["at"][0])
    yield from broken_places(facts)
    yield from (
        f"{enum.__name__}.{name} is missing" for name in facts["members"] if name not in enum.__members__
    )
    for name, value in facts["values"].items():
        if enum[name].value != value:
            yield f"{enum.__name__}.{name} is {enum[name].value!r}, not {value!r}"


def unknown_keys(value: object, shape: object, path: str = "") -> Iterator[str]:
    """Yield the keys of a row or an event that its shape (``row``, ``events``) does not have."""
    if isinstance(value, list) and isinstance(shape, list) and shape:
        for each in value:
            yield from unknown_keys(each, shape[0], f"{path}[]")
    elif isinstance(value, dict) and isinstance(shape, dict):
        for key, inner in value.items():
            if key not in shape and ANY_KEY not in shape:
                yield f"{path}.{key}"
            yield from unknown_keys(inner, shape.get(key, shape.get(ANY_KEY)), f"{path}.{key}")


def _is_read(cls: type, name: str) -> bool:
    """Whether instances have it: as a property, a slot, a field, or by annotation."""
    return hasattr(cls, name) or any(name in vars(base).get("__annotations__", {}) for base in cls.__mro__)


def _broken_fields(cls: type, facts: Facts) -> Iterator[str]:
    ours, wanted = _defaults(cls), {field["name"]: field for field in facts["fields"]}
    hidden = {*facts.get("outside_init", ()), *facts.get("also_in_init", ())}
    yield from (f"{cls.__name__}.{name} is missing" for name in wanted if name not in ours)
    yield from (f"{cls.__name__} has no {name}" for name in hidden if name not in _all_fields(cls))
    if facts["exact"] and [*ours] != [*wanted]:
        yield f"{cls.__name__} has the fields {[*ours]}"
    for name in ours.keys() & wanted.keys():
        if not _is_default(ours[name], wanted[name]):
            yield f"{cls.__name__}.{name} is {ours[name]!r} by default, not as in {wanted[name]}"
    if facts["keyword_only"] and _takes_positions(cls):
        yield f"{cls.__name__} takes positional arguments"


def _all_fields(cls: type) -> list[str]:
    return [field.name for field in dataclasses.fields(cls)] if dataclasses.is_dataclass(cls) else []


def _takes_positions(cls: type) -> bool:
    parameters = list(inspect.signature(cls).parameters.values())
    return any(each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for each in parameters)


def _defaults(cls: type) -> dict[str, object]:
    """Return name -> default of what a caller may give; `inspect.Parameter.empty` where there is none."""
    if issubclass(cls, BaseModel):
        return {
            name: inspect.Parameter.empty
            if field.is_required()
            else field.get_default(call_default_factory=True)
            for name, field in cls.model_fields.items()
        }
    if not dataclasses.is_dataclass(cls):
        parameters = inspect.signature(cls).parameters
        return {name: parameter.default for name, parameter in parameters.items()}
    return {
        field.name: field.default_factory()
        if field.default_factory is not dataclasses.MISSING
        else inspect.Parameter.empty
        if field.default is dataclasses.MISSING
        else field.default
        for field in dataclasses.fields(cls)
        if field.init
    }


def _is_default(ours: object, wanted: Facts) -> bool:
    if "made_by" in wanted:
        names = {base.__name__ for base in type(ours).__mro__}
        return (
            wanted["made_by"] in names
            or wanted["made_by"] == "a function"
            or _is_alias(ours, wanted["made_by"])
        )
    if "default" not in wanted:
        return ours is inspect.Parameter.empty
    default = wanted["default"]
    if isinstance(ours, Enum):
        return default in (ours.value, ours.name)
    return bool((list(ours) if isinstance(ours, tuple) else ours) == default)


def _is_alias(value: object, name: str) -> bool:
    return getattr(importlib.import_module("tensorrt_llm.llmapi.llm_args"), name, None) is type(value)


def _broken_signature(name: str, function: Any, facts: Facts) -> Iterator[str]:
    if function is None:
        yield f"{name} is missing"
        return
    ours, wanted = (
        inspect.signature(function).parameters,
        {each["name"]: each for each in facts["parameters"]},
    )
    if inspect.iscoroutinefunction(function) != facts["async"]:
        yield f"{name}: async is not {facts['async']}"
    if facts["exact"] and [*ours] != [*wanted]:
        yield f"{name} takes {[*ours]}"
    for each, parameter in wanted.items():
        if each not in ours:
            yield f"{name} takes no {each}"
        elif ours[each].kind.name.lower() != parameter["kind"]:
            yield f"{name}: {each} is {ours[each].kind.name.lower()}, not {parameter['kind']}"
        elif not _is_default(ours[each].default, parameter):
            yield f"{name}: {each} is {ours[each].default!r} by default, not as in {parameter}"
