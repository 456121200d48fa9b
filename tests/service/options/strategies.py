"""Values of every kind of option, as text an operator could write."""

from __future__ import annotations

import json
from collections.abc import Mapping

from hypothesis import strategies as st

from service.options.json_kind import JsonObject
from service.options.kinds import Boolean, Choice, Integer, Kind, Number, SecretText, Text, Words
from service.options.processor_kind import Processors
from service.options.tag_kind import FIELDS, TagSetting

_PLAIN = st.text(st.sampled_from("abcxyz019_-"), min_size=1, max_size=12)
_NAMES = st.text(st.sampled_from("abcXYZ019._-"), min_size=1, max_size=12)
_JSON = st.dictionaries(_PLAIN, st.none() | st.booleans() | st.integers(-9, 9) | _PLAIN, max_size=3)


def texts(kind: Kind) -> st.SearchStrategy[str]:
    """Accepted spellings of values of a kind."""
    match kind:
        case Boolean():
            return st.sampled_from(["true", "1", "yes", "on", "False", "0", "NO", "off"])
        case Integer(minimum=minimum, maximum=maximum):
            return st.integers(minimum, maximum).map(str)
        case Number(minimum=minimum, maximum=maximum, with_minimum=with_minimum):
            return st.floats(minimum, maximum, exclude_min=not with_minimum).map(repr)
        case Choice(values=values):
            return st.sampled_from(values)
        case Words(values=values):
            words = st.sampled_from(values) if values else _PLAIN
            return st.lists(words, min_size=1, max_size=3).map(",".join)
        case JsonObject() | TagSetting() | Processors():
            return _objects(kind)
        case SecretText(minimum=minimum):
            return st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=minimum, max_size=20)
        case Text():
            return _texts_like(kind)
        case _:
            raise TypeError(kind)


def _objects(kind: JsonObject | TagSetting | Processors) -> st.SearchStrategy[str]:
    match kind:
        case JsonObject():
            return _JSON.map(json.dumps)
        case TagSetting():
            fields = {name: st.sampled_from(values) for name, values in FIELDS.items()}
            return (st.booleans() | st.fixed_dictionaries({}, optional=fields)).map(json.dumps)
        case Processors():
            return st.dictionaries(_NAMES, _JSON, min_size=1, max_size=3).map(_processors)


def _processors(options: Mapping[str, Mapping[str, object]]) -> str:
    """Entries with and without options, in one text."""
    return ", ".join(
        f"{name}=some.module:Factory" + (f"={json.dumps(found)}" if found else "")
        for name, found in options.items()
    )


def _texts_like(kind: Text) -> st.SearchStrategy[str]:
    if kind.allowed.startswith("dyn://"):
        return st.tuples(_PLAIN, _PLAIN, _PLAIN).map(lambda parts: "dyn://" + ".".join(parts))
    if kind.allowed.startswith("a file://"):
        return _PLAIN.map("file:///".__add__)
    # A value that begins with two dashes needs the --flag=value form; that has a test of its own.
    return _PLAIN.filter(lambda text: not text.startswith("--"))
