"""Structural tags, which guide tool calls: what was asked for, in the words of either framework.

Framework 1.4 has three options, off by default. 1.6 has one object, on by default, and hands the three on
as parts of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from service.options.engine_arguments.known_fields import VERSION
from service.options.settings import StructuralTags

if TYPE_CHECKING:
    from collections.abc import Iterator

    from service.options.build import Outcome
    from service.options.errors import Complaints
    from service.options.framework import FrameworkFacts
    from service.options.resolve import Resolution, Resolved

_NEW, _SWITCH = "dyn_structural_tag", "dyn_enable_structural_tag"
# Old option -> the part of the object that it is.
_PARTS = {"dyn_structural_tag_scope": "scope", "dyn_structural_tag_schema": "schema"}
# The Python side of the framework has this scope where none is given, its Rust side another.
_DEFAULTS: dict[str, object] = {"scope": "always", "schema": "auto"}
_BACKEND = "--guided-decoding-backend xgrammar"
_ANY_ORDER, _VERSION_OF_ANY_ORDER = "tool_arguments_any_order", "0.2.3"


def tags_of(resolution: Resolution, outcome: Outcome) -> StructuralTags:
    """For both frameworks; each is told of its own."""
    asked = _asked(resolution)
    if asked is None and _follows(outcome):
        asked = {}
    return StructuralTags(
        enabled=resolution.get(_SWITCH, bool),
        scope=resolution.get("dyn_structural_tag_scope", str),
        schema=resolution.get("dyn_structural_tag_schema", str),
        as_object={**_DEFAULTS, **asked} if isinstance(asked, Mapping) else None,
    )


def check_tags(
    resolution: Resolution,
    outcome: Outcome,
    framework: FrameworkFacts,
    xgrammar: str,
    complaints: Complaints,
) -> None:
    """Contradictions are refused; old spellings, and tags that the engine does not follow, are named.

    xgrammar: the version that is installed, "" for none.
    """
    new = resolution[_NEW]
    for old in _old(resolution):
        if new.value is not None and not _agrees(old, new):
            complaints.refuse(old.where, old.option.show(old.value), f"cannot be combined with {new.where}")
        elif framework.is_since_1_6:
            complaints.warn(f"{old.where} is an old spelling for this framework: use --dyn-structural-tag")
    if outcome.arguments is None:
        return
    if not _follows(outcome):
        _warn_about_tensorrt(resolution, framework, complaints)
    elif framework.is_since_1_6 and isinstance(new.value, Mapping) and new.value.get(_ANY_ORDER) is True:
        _check_any_order(new, xgrammar, complaints)


def _check_any_order(asked: Resolved, xgrammar: str, complaints: Complaints) -> None:
    """As the framework does when its own worker starts: an older library knows no such tag."""
    needs = f"{_ANY_ORDER} needs xgrammar {_VERSION_OF_ANY_ORDER}"
    if not xgrammar:
        complaints.warn(f"{asked.where}: {needs} or newer, which TensorRT-LLM {VERSION} does not bring")
    elif _numbers(xgrammar) < _numbers(_VERSION_OF_ANY_ORDER):
        complaints.refuse(asked.where, asked.option.show(asked.value), f"{needs}; {xgrammar} is installed")


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)[:3]]


def _warn_about_tensorrt(resolution: Resolution, framework: FrameworkFacts, complaints: Complaints) -> None:
    asking = _who_asks(resolution, framework)
    if asking:
        complaints.warn(
            f"{asking}: requests with tools will be refused, since structural tags need {_BACKEND}"
        )
    parser = resolution["dyn_tool_call_parser"]
    if framework.is_since_1_6 and parser.is_given and _asked(resolution) is None:
        complaints.warn(
            f"{parser.where}: tool calls are not guided; structural tags, which ai-dynamo "
            f"{framework.version} has on by default, need {_BACKEND}"
        )


def _who_asks(resolution: Resolution, framework: FrameworkFacts) -> str:
    """What switches the tags on, "" where nothing that was given does."""
    if not framework.is_since_1_6:
        return resolution[_SWITCH].where if resolution[_SWITCH].value else ""
    if _asked(resolution) in (None, False):
        return ""
    return next(found.where for found in (resolution[_NEW], *_old(resolution)) if found.is_given)


def _asked(resolution: Resolution) -> Mapping[str, object] | bool | None:
    """As framework 1.6 takes it: fields of the object, false for off, None where nothing was said."""
    new, old = resolution[_NEW].value, list(_old(resolution))
    if new is not None:
        return {} if new is True else cast("Mapping[str, object] | bool", new)
    if not old:
        return None
    parts = {_PARTS[found.option.name]: found.value for found in old if found.option.name in _PARTS}
    switch = resolution[_SWITCH]
    return False if switch.is_given and not switch.value else parts


def _old(resolution: Resolution) -> Iterator[Resolved]:
    return (resolution[name] for name in (_SWITCH, *_PARTS) if resolution[name].is_given)


def _agrees(old: Resolved, new: Resolved) -> bool:
    """On and off may be said twice."""
    return old.option.name == _SWITCH and old.value == (new.value is not False)


def _follows(outcome: Outcome) -> bool:
    """Whether the engine obeys them. Synthetic obeys nothing, and of TensorRT-LLM's back-ends one does."""
    if outcome.arguments is not None:
        return outcome.arguments.value("guided_decoding_backend") == "xgrammar"
    return outcome.engine == "torch"
