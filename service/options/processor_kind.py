"""The kind of the option that names logits processors and where they come from."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from protocols.strict_json import DECODER

if TYPE_CHECKING:
    from service.options.values import Value

_NAME = r"[A-Za-z0-9._-]+"
_FACTORY = r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*"
_ENTRY = re.compile(rf"({_NAME})=({_FACTORY})")
# What may stand between two of them, where only one text can be given.
_GAP = re.compile(r"[\s,]*")
# Characters of a text that cannot be read that are shown.
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Processors:
    """``NAME=module:Factory``, perhaps with ``={...}`` of default options behind it; any number of them.

    The value is None, or an object for each name: ``{"factory": "module:Factory", "options": {...}}``.
    In a file also a list of such texts, or an object with names as keys.
    """

    @property
    def allowed(self) -> str:
        return (
            'NAME=module:Factory or NAME=module:Factory={"option": value}, the name of letters, digits, '
            '".", "_" and "-"; several with blanks or commas between them'
        )

    def parse(self, text: str) -> Value:
        return _joined(_entries(text))

    def read(self, raw: object) -> Value:
        if isinstance(raw, str):
            return self.parse(raw)
        if isinstance(raw, list):
            texts = cast("list[object]", raw)
            return _joined(entry for text in texts for entry in _entries(_text(text)))
        if isinstance(raw, Mapping):
            return _joined(
                _read_entry(name, found) for name, found in cast("Mapping[str, object]", raw).items()
            )
        raise ValueError(f"found {type(raw).__name__}")

    def show(self, value: Value) -> str:
        return " ".join(_shown(name, entry) for name, entry in cast("Mapping[str, object]", value).items())


_Entry = tuple[str, dict[str, object]]


def _entries(text: str) -> Iterator[_Entry]:
    """Each with its name. Raises ValueError where something else begins."""
    at = _end_of_gap(text, 0)
    while at < len(text):
        found = _ENTRY.match(text, at)
        if found is None:
            raise ValueError(f"cannot read {text[at : at + _SHOWN]!r}")
        options, end = _options_at(text, found.end())
        at = _end_of_gap(text, end)
        if at == end < len(text):
            raise ValueError(f"cannot read {text[found.start() : found.start() + _SHOWN]!r}")
        yield found[1], {"factory": found[2], "options": options}


def _options_at(text: str, at: int) -> tuple[dict[str, object], int]:
    """The options that begin there with ``=``, and where they end."""
    if not text.startswith("=", at):
        return {}, at
    try:
        options, end = cast("tuple[object, int]", DECODER.raw_decode(text, at + 1))
    except RecursionError:
        raise ValueError("nested too deep") from None
    if not isinstance(options, dict):
        raise ValueError(f"the options are no JSON object but {type(options).__name__}")
    return cast("dict[str, object]", options), end


def _end_of_gap(text: str, at: int) -> int:
    found = _GAP.match(text, at)
    return at if found is None else found.end()


def _read_entry(name: str, found: object) -> _Entry:
    """From a file: the text behind ``NAME=``, or an object with factory and options."""
    if not isinstance(found, Mapping):
        text = f"{name}={_text(found)}"
    else:
        entry = cast("Mapping[str, object]", found)
        if not {"factory"} <= set(entry) <= {"factory", "options"}:
            raise ValueError(f"{name!r} needs the keys factory and, perhaps, options")
        try:
            options = json.dumps(entry.get("options", {}))
        except (TypeError, RecursionError) as error:
            raise ValueError(f"the options of {name!r} are not JSON ({error})") from error
        text = f"{name}={_text(entry['factory'])}={options}"
    (only,) = _entries(text)
    return only


def _joined(entries: Iterator[_Entry]) -> Value:
    found: dict[str, object] = {}
    for name, entry in entries:
        if name in found:
            raise ValueError(f"{name!r} is there twice")
        found[name] = entry
    return found or None


def _shown(name: str, entry: object) -> str:
    found = cast("Mapping[str, object]", entry)
    options = found["options"]
    return f"{name}={found['factory']}" + (f"={json.dumps(options)}" if options else "")


def _text(raw: object) -> str:
    if isinstance(raw, str):
        return raw
    raise ValueError(f"found {type(raw).__name__}")
