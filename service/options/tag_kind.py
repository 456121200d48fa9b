"""The kind of the option that holds structural tags: an object of framework 1.6, or on and off."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from protocols.strict_json import read_json
from service.options.kinds import Boolean
from service.options.nearest import advice

if TYPE_CHECKING:
    from service.options.values import Value

# Of the framework's object: each field with the values it takes, its default first (read in 1.6.1). A
# worker with anything else dies while it registers, after its model was loaded.
FIELDS: dict[str, tuple[object, ...]] = {
    "scope": ("always", "auto"),
    "schema": ("auto", "strict"),
    "allow_tool_calls_with_structured_output": (False, True),
    "exclude_special_tokens": (None, False, True),
    "reasoning_boundary": ("auto", "structural_tag", "backend"),
    "tool_arguments_any_order": (False, True),
}
_WORDS = Boolean()


@dataclass(frozen=True, slots=True)
class TagSetting:
    """True, false, or some fields of the framework's object."""

    @property
    def allowed(self) -> str:
        fields = (f"{name} ({_listed(values)})" for name, values in FIELDS.items())
        return f"{_WORDS.allowed}, or a JSON object of {', '.join(fields)}"

    def parse(self, text: str) -> Value:
        if not text:
            return None
        try:
            return _WORDS.parse(text)
        except ValueError:
            pass
        try:
            found: object = read_json(text)
        except RecursionError:
            raise ValueError("nested too deep") from None
        return _checked(found)

    def read(self, raw: object) -> Value:
        if isinstance(raw, bool):
            return raw
        return self.parse(raw) if isinstance(raw, str) else _checked(raw)

    def show(self, value: Value) -> str:
        return json.dumps(value)


def _checked(found: object) -> Value:
    if not isinstance(found, Mapping):
        raise ValueError(f"found {type(found).__name__}")
    for name, value in cast("Mapping[object, object]", found).items():
        if name not in FIELDS:
            raise ValueError(
                f"unknown key {name!r}; {advice(str(name), FIELDS, 'the others are named here')}"
            )
        # As JSON, where 1 is not true.
        if json.dumps(value, default=str) not in map(json.dumps, FIELDS[str(name)]):
            raise ValueError(f"{name} must be one of {_listed(FIELDS[str(name)])}")
    return cast("Mapping[str, object]", found)


def _listed(values: tuple[object, ...]) -> str:
    return ", ".join(value if isinstance(value, str) else json.dumps(value) for value in values)
